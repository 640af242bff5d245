/* Processors with the DSP extension (Cortex-M4, M7, M33): pairs of 16-bit products, four pixels by two channels. */
typedef uint32_t packed; /* [depth / 2][4 pixels], two neighbours along the depth in each */
typedef struct {
    packed *to;
    int odd;
} packing;
INLINE uint32_t sxtb16(uint32_t a) {
    uint32_t made;
#if defined(__ARM_FEATURE_DSP)
    __asm__("sxtb16 %0, %1" : "=r"(made) : "r"(a));
#else
    made = (uint16_t)(int8_t)a | (uint32_t)(uint16_t)(int8_t)(a >> 16) << 16;
#endif
    return made;
}
INLINE uint32_t sxtb16_high(uint32_t a) {
    uint32_t made;
#if defined(__ARM_FEATURE_DSP)
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(made) : "r"(a));
#else
    made = sxtb16(a >> 8);
#endif
    return made;
}
INLINE uint32_t sxtb16_swapped(uint32_t a) {
    uint32_t made;
#if defined(__ARM_FEATURE_DSP)
    __asm__("sxtb16 %0, %1, ror #16" : "=r"(made) : "r"(a));
#else
    made = sxtb16(a >> 16 | a << 16);
#endif
    return made;
}
INLINE uint32_t low_halves(uint32_t a, uint32_t b) { /* a's below b's */
#if defined(__ARM_FEATURE_DSP)
    uint32_t made;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(made) : "r"(a), "r"(b));
    return made;
#else
    return (a & 0xFFFFu) | b << 16;
#endif
}
INLINE uint32_t high_halves(uint32_t a, uint32_t b) {
#if defined(__ARM_FEATURE_DSP)
    uint32_t made;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(made) : "r"(b), "r"(a));
    return made;
#else
    return a >> 16 | (b & 0xFFFF0000u);
#endif
}
INLINE int32_t smlad(uint32_t a, uint32_t b, int32_t sum) {
#if defined(__ARM_FEATURE_DSP)
    int32_t made;
    __asm__("smlad %0, %1, %2, %3" : "=r"(made) : "r"(a), "r"(b), "r"(sum));
    return made;
#else
    const int32_t low = (int16_t)a * (int16_t)b, high = (int16_t)(a >> 16) * (int16_t)(b >> 16);
    return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
#endif
}
#if defined(__ARM_FEATURE_DSP)
#define ONE_PRODUCT(name, a_bits, b_bits) \
    INLINE int32_t name(uint32_t a, uint32_t b, int32_t sum) { \
        int32_t made; \
        __asm__(#name " %0, %1, %2, %3" : "=r"(made) : "r"(a), "r"(b), "r"(sum)); \
        return made; \
    }
#else
#define ONE_PRODUCT(name, a_bits, b_bits) \
    INLINE int32_t name(uint32_t a, uint32_t b, int32_t sum) { \
        return (int32_t)((uint32_t)sum + (uint32_t)((int16_t)(a >> a_bits) * (int16_t)(b >> b_bits))); \
    }
#endif
ONE_PRODUCT(smlabt, 0, 16)
ONE_PRODUCT(smlatb, 16, 0)
INLINE packing packing_of(const struct convolution *l, packed *to, int slot) {
    (void)l;
    return (packing){to + slot, 0};
}
INLINE void put_value(packing *at, int32_t value) { /* an even one clears its neighbour: the depth's end is 0 */
    if (at->odd) {
        *at->to |= (uint32_t)value << 16;
        at->to += 4;
    } else {
        *at->to = (uint16_t)value;
    }
    at->odd ^= 1;
}
/* Words of four pixels lie in the second half; pairs grow over them. */
INLINE uint32_t *words_of(const struct convolution *l, packed *scratch) {
    return scratch + l->depth;
}
INLINE void unpack(const struct convolution *l, packed *to) {
    const uint32_t *from = words_of(l, to);
    for (const packed *const end = to + 2 * l->depth; to != end; to += 4, from += 2) {
        const uint32_t a_even = sxtb16(from[0]), a_odd = sxtb16_high(from[0]);
        const uint32_t b_even = sxtb16(from[1]), b_odd = sxtb16_high(from[1]);
        to[0] = low_halves(a_even, b_even), to[1] = low_halves(a_odd, b_odd);
        to[2] = high_halves(a_even, b_even), to[3] = high_halves(a_odd, b_odd);
    }
}

/* All registers are in use: eight sums, two words of weights, two of pixels, two pointers; the end lies on the stack. */
#define FOUR_BY_TWO \
    "ldrd %[u], %[v], [%[pixel]], #8\n" \
    "smlad %[a0], %[p], %[u], %[a0]\n smlad %[b0], %[q], %[u], %[b0]\n" \
    "smlad %[a1], %[p], %[v], %[a1]\n smlad %[b1], %[q], %[v], %[b1]\n" \
    "ldrd %[u], %[v], [%[pixel]], #8\n" \
    "smlad %[a2], %[p], %[u], %[a2]\n smlad %[b2], %[q], %[u], %[b2]\n" \
    "smlad %[a3], %[p], %[v], %[a3]\n smlad %[b3], %[q], %[v], %[b3]\n"

/* Weights: [channels / 2][depth / 4][2 channels][4], the middle two of four swapped, zeros behind the last ones. */
SHARED void multiply(const struct convolution *l, int group, const packed *pixels, int8_t *y, int plane, int count) {
    WRITES;
    const int8_t *weight = l->weights + group * l->weights_step;
    const int32_t *const biases = l->biases;
    const float *const scales = l->scales;
    const packed *const end = pixels + 2 * l->depth;
    const int32_t zero = zero_to_store(l->y_zero);
    int at = group * l->channels_step;
    for (const int last = at + l->out_channels; at < last; at += 2) {
        const int32_t *const bias = biases + at;
        const packed *pixel = pixels;
        int32_t a0 = bias[0], a1 = a0, a2 = a0, a3 = a0, b0 = bias[1], b1 = b0, b2 = b0, b3 = b0;
        uint32_t p, q, u, v;
#if defined(__ARM_FEATURE_DSP)
        __asm__("1:\n ldrd %[p], %[q], [%[weight]]\n sxtb16 %[p], %[p]\n sxtb16 %[q], %[q]\n" FOUR_BY_TWO
                "ldrd %[p], %[q], [%[weight]], #8\n sxtb16 %[p], %[p], ror #8\n sxtb16 %[q], %[q], ror #8\n" FOUR_BY_TWO
                "ldr %[v], %[end]\n cmp %[pixel], %[v]\n bne 1b"
                : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1),
                  [b2] "+r"(b2), [b3] "+r"(b3), [pixel] "+r"(pixel), [weight] "+r"(weight), [p] "=&r"(p), [q] "=&r"(q),
                  [u] "=&r"(u), [v] "=&r"(v)
                : [end] "m"(end)
                : "cc", "memory");
#else
        for (; pixel != end; weight += 8)
            for (int half = 0; half < 2; half++, pixel += 4) {
                u = load(weight), v = load(weight + 4);
                p = half ? sxtb16_high(u) : sxtb16(u), q = half ? sxtb16_high(v) : sxtb16(v);
                a0 = smlad(p, pixel[0], a0), a1 = smlad(p, pixel[1], a1);
                a2 = smlad(p, pixel[2], a2), a3 = smlad(p, pixel[3], a3);
                b0 = smlad(q, pixel[0], b0), b1 = smlad(q, pixel[1], b1);
                b2 = smlad(q, pixel[2], b2), b3 = smlad(q, pixel[3], b3);
            }
#endif
        store(y, a0, a1, a2, a3, scales[at], zero, count);
        y += plane;
        if (at + 1 == last) break;
        store(y, b0, b1, b2, b3, scales[at + 1], zero, count);
        y += plane;
    }
}

/* Weights: four rows beside each other, [inputs / 4][4 rows][4]; the last rows alone. Their ends are zeros. */
#define ONE_ROW(sum, word) \
    "sxtb16 %[t], %[" word "]\n smlad %[" sum "], %[t], %[even], %[" sum "]\n" \
    "sxtb16 %[t], %[" word "], ror #8\n smlad %[" sum "], %[t], %[odd], %[" sum "]\n"
INLINE void dot_products(const int8_t *weight, const int8_t *x, int inputs, int rows, int32_t *sums) {
    const int8_t *const end = x + (inputs & ~3);
#if defined(__ARM_FEATURE_DSP)
    if (rows == 4 && x != end) {
        int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3];
        uint32_t even, odd, u, v, t;
        __asm__("1:\n ldr %[even], [%[x]], #4\n ldrd %[u], %[v], [%[weight]], #8\n"
                "sxtb16 %[odd], %[even], ror #8\n sxtb16 %[even], %[even]\n" ONE_ROW("a", "u") ONE_ROW("b", "v")
                "ldrd %[u], %[v], [%[weight]], #8\n" ONE_ROW("c", "u") ONE_ROW("d", "v") "cmp %[x], %[end]\n bne 1b"
                : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [x] "+r"(x), [weight] "+r"(weight),
                  [even] "=&r"(even), [odd] "=&r"(odd), [u] "=&r"(u), [v] "=&r"(v), [t] "=&r"(t)
                : [end] "r"(end)
                : "cc", "memory");
        sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
    }
#endif
    for (int left = inputs & 3; x != end || left; x += 4) { /* what is left of a word is read alone */
        uint32_t values = 0;
        if (x != end) {
            values = load(x);
        } else {
            for (int i = 0; i < left; i++) values |= (uint32_t)(uint8_t)x[i] << (8 * i);
        }
        const uint32_t even = sxtb16(values), odd = sxtb16_high(values);
        for (int i = 0; i < rows; i++, weight += 4) {
            const uint32_t four = load(weight);
            sums[i] = smlad(sxtb16_high(four), odd, smlad(sxtb16(four), even, sums[i]));
        }
        if (x == end) break;
    }
}
#define ROWS_AT_ONCE 4
#define FOURS_TOGETHER
#define ROW_BYTES(inputs) (((inputs) + 3) / 4 * 4)
