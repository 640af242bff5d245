/* round(float(sum) * scale), to even, as float32 gives it. */
#if defined(NET_INTEGER_ROUNDING) || (defined(__arm__) && !defined(__ARM_FP))
#define WITHOUT_FLOATS
/* value * 2^exponent: floats without a library for them. */
typedef struct {
    int64_t value;
    int exponent;
} real;
/* n * scale, exactly. */
INLINE real times(int32_t n, uint32_t scale) {
    const int32_t significand = (int32_t)((scale & 0x7FFFFFu) | 0x800000u);
    return (real){(int64_t)n * (scale >> 31 ? -significand : significand), (int)(scale >> 23 & 255) - 150};
}
/* The nearest value with a float's significand; ties to even. */
SHARED real to_24_bits(real x) {
    const uint64_t size = x.value < 0 ? 0u - (uint64_t)x.value : (uint64_t)x.value;
    if (size >> 24 == 0) return x;
    const int drop = 40 - __builtin_clzll(size);
    const uint64_t half = 1ull << (drop - 1), rest = size & (2 * half - 1);
    const int64_t kept = (int64_t)(size >> drop) + (rest > half || (rest == half && (size >> drop & 1)));
    return (real){x.value < 0 ? -kept : kept, x.exponent + drop};
}
/* The nearest integer; ties to even. What lies beyond 2^30 is given as that. */
SHARED int32_t nearest(real x) {
    const uint64_t size = x.value < 0 ? 0u - (uint64_t)x.value : (uint64_t)x.value;
    const int shift = -x.exponent;
    uint32_t result = 1u << 30;
    if (size == 0 || shift > 63) return 0;
    if (shift <= 0) {
        if (shift > -30 && size >> (30 + shift) == 0) result = (uint32_t)size << -shift;
    } else if (size >> shift < result) {
        const uint64_t half = 1ull << (shift - 1), rest = size & (2 * half - 1);
        result = (uint32_t)(size >> shift);
        result += rest > half || (rest == half && (result & 1));
    }
    return x.value < 0 ? -(int32_t)result : (int32_t)result;
}
INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
/* a + b, rounded as a float; one of them is a float already, the other has at most 32 bits. What is too small to be
   added in 62 bits only says to which side of a tie the sum lies. */
SHARED real sum_of(real a, real b) {
    if (b.value == 0 || (a.value != 0 && a.exponent < b.exponent)) {
        const real other = a;
        a = b, b = other;
    }
    if (a.value != 0) {
        const int room = __builtin_clzll(a.value < 0 ? 0u - (uint64_t)a.value : (uint64_t)a.value) - 2;
        const int gap = a.exponent - b.exponent, shift = gap < room ? gap : room;
        if (gap > room) b.value = b.value < 0 ? -1 : 1;
        b.value += a.value * (1ll << shift), b.exponent = a.exponent - shift;
    }
    return to_24_bits(b);
}
/* a / b, rounded as a float; both have at most 24 bits. */
SHARED real quotient(real a, real b) {
    if (a.value == 0) return a;
    uint32_t by = (uint32_t)(b.value < 0 ? -b.value : b.value), rest = (uint32_t)(a.value < 0 ? -a.value : a.value);
    int exponent = a.exponent - b.exponent;
    for (; by < rest; exponent++) by <<= 1;
    for (; rest < by; exponent--) rest <<= 1;
    int64_t made = 0;
    for (int i = 0; i < 26; i++, exponent--) {
        made = 2 * made + (rest >= by);
        rest = 2 * (rest >= by ? rest - by : rest);
    }
    made = 2 * made + (rest != 0); /* the last bit only says that there is more */
    return to_24_bits((real){(a.value < 0) != (b.value < 0) ? -made : made, exponent});
}
/* For a scale that is a float with these bits. */
SHARED int32_t round_exactly(int32_t sum, uint32_t bits) {
    const real exact = to_24_bits((real){sum, 0}), by = times(1, bits);
    return nearest(to_24_bits((real){exact.value * by.value, exact.exponent + by.exponent}));
}
typedef struct {
    int32_t significand; /* 31 bits */
    int shift;
    uint32_t bits;
} factor;
INLINE factor factor_of(float scale) {
    factor made;
    memcpy(&made.bits, &scale, 4);
    made.significand = (int32_t)(((made.bits & 0x7FFFFFu) | 0x800000u) << 7);
    made.shift = 125 - (int)(made.bits >> 23);
    return made;
}
#if defined(NET_WIDE_SCALES) && !defined(NET_SMALL)
/* Some layer's scales are outside [2^-30, 1/4). From 1/4 on sums of 2048 saturate; smaller ones are floats as they are. */
SHARED int32_t round_widely(int32_t sum, int32_t significand, int shift, uint32_t bits) {
    if (shift > 0 || shift < -20) return round_exactly(sum, bits);
    if (sum >= 2048) return 512;
    if (sum <= -2048) return -512;
    const int64_t product = (int64_t)sum * significand * (1 << -shift);
    const uint32_t fraction = (uint32_t)product;
    if (fraction - 0x7FFC0000u < 0x80000u) return round_exactly(sum, bits);
    return (int32_t)(product >> 32) + (int32_t)(fraction >> 31);
}
#endif
/* Whether the product's high word decides: not where it lies next to a tie, where float's two roundings may differ from
   it. The sum's and the product's are at most 2^-24 each, of values below 256; a zero point's may come to them. */
INLINE int is_rounded(int32_t sum, factor by, int32_t *made) {
    const int64_t product = (int64_t)sum * by.significand;
    const int32_t high = (int32_t)(product >> 32);
    const uint32_t fraction = (uint32_t)high << (32 - by.shift) | (uint32_t)product >> by.shift;
    *made = (high >> by.shift) + (int32_t)(fraction >> 31);
    return __builtin_expect(fraction - 0x7FFC0000u >= 0x80000u, 1);
}
INLINE int32_t requantise(int32_t sum, factor by) {
#if !defined(NET_SMALL)
#if defined(NET_WIDE_SCALES)
    if ((unsigned)(by.shift - 1) >= 28u) return round_widely(sum, by.significand, by.shift, by.bits);
#endif
    int32_t made;
    if (is_rounded(sum, by, &made)) return made;
#endif
    return round_exactly(sum, by.bits);
}
INLINE int32_t rounded_float(float value) {
    return (int32_t)nearbyintf(value < -1000.0f ? -1000.0f : value > 1000.0f ? 1000.0f : value);
}
#define ROUNDED_ZERO 0
#else
typedef float factor;
INLINE factor factor_of(float scale) {
    return scale;
}
/* For |value| < 2^22: in a float near 3 * 2^22 the last bit is worth 1. */
INLINE int32_t bits_of_rounded(float value) {
    int32_t bits;
    value += 12582912.0f;
    memcpy(&bits, &value, 4);
    return bits;
}
#define ROUNDED_ZERO 0x4B400000
INLINE int32_t rounded_float(float value) {
    return bits_of_rounded(value < -1000.0f ? -1000.0f : value > 1000.0f ? 1000.0f : value) - ROUNDED_ZERO;
}
INLINE int32_t requantise(int32_t sum, factor by) {
    float value = (float)sum * by;
#if defined(NET_HUGE_SUMS)
    value = value < -1000.0f ? -1000.0f : value > 1000.0f ? 1000.0f : value;
#endif
    return bits_of_rounded(value);
}
#endif
/* What requantised values are added to, in a register: as a constant it would be put together again and again. */
INLINE int32_t zero_point(int32_t zero) {
    zero -= ROUNDED_ZERO;
    __asm__("" : "+r"(zero));
    return zero;
}
#if defined(__ARM_FEATURE_DSP) && !defined(NET_SMALL)
#if defined(NET_LONG_SUMS)
/* Four sums, scaled to whatever: converted and clamped one by one. */
#define ROUND_FOUR \
    "vcvtr.s32.f32 s0, s0\n vcvtr.s32.f32 s1, s1\n vcvtr.s32.f32 s2, s2\n vcvtr.s32.f32 s3, s3\n" \
    "vmov %[a], %[b], s0, s1\n vmov %[c], %[d], s2, s3\n" \
    "qadd %[a], %[a], %[zeros]\n qadd %[b], %[b], %[zeros]\n qadd %[c], %[c], %[zeros]\n qadd %[d], %[d], %[zeros]\n" \
    "ssat %[a], #8, %[a]\n ssat %[b], #8, %[b]\n ssat %[c], #8, %[c]\n ssat %[d], #8, %[d]\n" \
    "bfi %[a], %[b], #8, #8\n bfi %[c], %[d], #8, #8\n pkhbt %[a], %[a], %[c], lsl #16"
#else
/* Four sums, scaled below 2^15: rounded near 3 * 2^22, clamped in halves. */
#define ROUND_FOUR \
    "vadd.f32 s0, s0, %[whole]\n vadd.f32 s1, s1, %[whole]\n" \
    "vadd.f32 s2, s2, %[whole]\n vadd.f32 s3, s3, %[whole]\n" \
    "vmov %[a], %[b], s0, s1\n vmov %[c], %[d], s2, s3\n" \
    "pkhbt %[a], %[a], %[c], lsl #16\n pkhbt %[b], %[b], %[d], lsl #16\n" \
    "qadd16 %[a], %[a], %[zeros]\n qadd16 %[b], %[b], %[zeros]\n usat16 %[a], #8, %[a]\n usat16 %[b], #8, %[b]\n" \
    "orr %[a], %[a], %[b], lsl #8\n eor %[a], %[a], #0x80808080"
#endif
/* Four sums as the bytes of a word. */
INLINE uint32_t four_bytes(int32_t a, int32_t b, int32_t c, int32_t d, float scale_a, float scale_b, float scale_c,
                           float scale_d, int32_t zeros) {
    __asm__("vmov s0, s1, %[a], %[b]\n vmov s2, s3, %[c], %[d]\n"
            "vcvt.f32.s32 s0, s0\n vcvt.f32.s32 s1, s1\n vcvt.f32.s32 s2, s2\n vcvt.f32.s32 s3, s3\n"
            "vmul.f32 s0, s0, %[scale_a]\n vmul.f32 s1, s1, %[scale_b]\n"
            "vmul.f32 s2, s2, %[scale_c]\n vmul.f32 s3, s3, %[scale_d]\n"
            ROUND_FOUR
            : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d)
            : [scale_a] "t"(scale_a), [scale_b] "t"(scale_b), [scale_c] "t"(scale_c), [scale_d] "t"(scale_d),
              [whole] "t"(12582912.0f), [zeros] "r"(zeros)
            : "s0", "s1", "s2", "s3");
    return (uint32_t)a;
}
#define FOUR_BYTES
/* What `store` adds: where it works in halves, the zero point from -128 on, in both. */
INLINE int32_t zero_to_store(int32_t zero) {
#if !defined(NET_LONG_SUMS)
    zero = (zero + 128) * 0x10001;
#endif
    __asm__("" : "+r"(zero));
    return zero;
}
/* Sums of one channel, to at most four neighbours. */
INLINE void store(int8_t *y, int32_t a, int32_t b, int32_t c, int32_t d, float scale, int32_t zero, int count) {
    uint32_t bytes = four_bytes(a, b, c, d, scale, scale, scale, scale, zero);
    if (__builtin_expect(count >= 4, 1)) {
        memcpy(y, &bytes, 4);
    } else {
        for (; count > 0; count--, bytes >>= 8) *y++ = (int8_t)bytes;
    }
}
#else
INLINE int32_t zero_to_store(int32_t zero) {
    return zero_point(zero);
}
/* Sums of one channel, to at most four neighbours; `zero` is a zero_to_store(). */
SHARED void store_some(int8_t *y, const int32_t *sums, float scale, int32_t zero, int count) {
    WRITES;
    const factor by = factor_of(scale);
    for (int i = 0; i < count; i++) y[i] = saturate(requantise(sums[i], by) + zero);
}
INLINE void store(int8_t *y, int32_t a, int32_t b, int32_t c, int32_t d, float scale, int32_t zero, int count) {
#if !defined(NET_SMALL)
    if (__builtin_expect(count >= 4, 1)) {
        const factor by = factor_of(scale);
        y[0] = saturate(requantise(a, by) + zero), y[1] = saturate(requantise(b, by) + zero);
        y[2] = saturate(requantise(c, by) + zero), y[3] = saturate(requantise(d, by) + zero);
        return;
    }
#endif
    store_some(y, (int32_t[]){a, b, c, d}, scale, zero, count);
}
#endif
