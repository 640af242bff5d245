/* round(float(sum) * scale), to even, as float32 gives it. */
#if defined(NET_INTEGER_ROUNDING) || (defined(__arm__) && !defined(__ARM_FP))
INLINE uint64_t to_24_bits(uint64_t value) { /* the nearest value with a float's significand; ties to even */
    if (value >> 24 == 0) return value;
    const int drop = 40 - __builtin_clzll(value);
    const uint64_t kept = value >> drop, rest = value - (kept << drop), half = 1ull << (drop - 1);
    return (kept + (rest > half || (rest == half && (kept & 1)))) << drop;
}
/* For a scale that is a float with these bits; results beyond 1000 are given as 1000. */
SHARED int32_t round_exactly(int32_t sum, uint32_t bits) {
    const uint32_t size = sum < 0 ? 0u - (uint32_t)sum : (uint32_t)sum;
    const uint64_t product = to_24_bits(to_24_bits(size) * ((bits & 0x7FFFFFu) | 0x800000u));
    const int shift = 150 - (int)(bits >> 23);
    if (product == 0 || shift > 63) return 0;
    uint32_t result = 1000;
    if (shift > 0 && product >> shift < 1000) {
        const uint64_t half = 1ull << (shift - 1), rest = product & (2 * half - 1);
        result = (uint32_t)(product >> shift);
        result += rest > half || (rest == half && (result & 1));
    }
    return sum < 0 ? -(int32_t)result : (int32_t)result;
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
/* The product's high word decides, unless it lies next to a tie, where float's two roundings may differ from it: the
   sum's and the product's are at most 2^-24 each, of values below 256. */
INLINE int32_t requantise(int32_t sum, factor by) {
#if !defined(NET_WIDE_SCALES)
    const int64_t product = (int64_t)sum * by.significand;
    const int32_t high = (int32_t)(product >> 32);
    const uint32_t fraction = (uint32_t)high << (32 - by.shift) | (uint32_t)product >> by.shift;
    if (__builtin_expect(fraction - 0x7FFC0000u >= 0x80000u, 1)) return (high >> by.shift) + (int32_t)(fraction >> 31);
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
#if defined(NET_WIDE_SCALES)
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
/* Sums of one channel, to at most four neighbours; `zero` is a zero_point(). */
SHARED void store_some(int8_t *y, const int32_t *sums, float scale, int32_t zero, int count) {
    const factor by = factor_of(scale);
    for (int i = 0; i < count; i++) y[i] = saturate(requantise(sums[i], by) + zero);
}
INLINE void store(int8_t *y, int32_t a, int32_t b, int32_t c, int32_t d, float scale, int32_t zero, int count) {
    if (__builtin_expect(count >= 4, 1)) {
        const factor by = factor_of(scale);
        y[0] = saturate(requantise(a, by) + zero), y[1] = saturate(requantise(b, by) + zero);
        y[2] = saturate(requantise(c, by) + zero), y[3] = saturate(requantise(d, by) + zero);
    } else {
        store_some(y, (int32_t[]){a, b, c, d}, scale, zero, count);
    }
}
