/* Sums and products; the steps say how far apart an operand's neighbours are: 0 where it is repeated. */
struct pairs {
    uint32_t counts[3], steps_a[3], steps_b[3];
    float scale_a, scale_b, fixed; /* a product takes scale_a alone, its output's zero point is `fixed` */
    int16_t zero_a, zero_b;
};
#define FOR_PAIRS(...) \
    for (uint32_t i = 0; i < l->counts[0]; i++) \
        for (uint32_t j = 0; j < l->counts[1]; j++) { \
            const int8_t *a = first + i * l->steps_a[0] + j * l->steps_a[1]; \
            const int8_t *b = second + i * l->steps_b[0] + j * l->steps_b[1]; \
            for (uint32_t k = 0; k < l->counts[2]; k++, a += l->steps_a[2], b += l->steps_b[2]) *y++ = __VA_ARGS__; \
        }

#if defined(NET_INTEGER_ROUNDING) || (defined(__arm__) && !defined(__ARM_FP))
SHARED int32_t add_exactly(const struct pairs *l, int32_t a, int32_t b) {
    return rounded_float(fmaf((float)a, l->scale_a, fmaf((float)b, l->scale_b, l->fixed)));
}
/* In 2^-16 first: software floats only where the sum lies next to a tie. */
INLINE int8_t add_pair(const struct pairs *l, int32_t a, int32_t b, int32_t scale_a, int32_t scale_b, int32_t fixed) {
    const int32_t sum = a * scale_a + b * scale_b + fixed;
    if (__builtin_expect((uint32_t)(sum & 0xFFFF) - 0x7E00u >= 0x400u, 1)) return saturate((sum + 0x8000) >> 16);
    return saturate(add_exactly(l, a, b));
}
SHARED void add(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    const float most = l->scale_a > l->scale_b ? l->scale_a : l->scale_b;
    if (most < 32.0f && l->fixed > -8000.0f && l->fixed < 8000.0f) {
        const int32_t scale_a = (int32_t)nearbyintf(l->scale_a * 65536.0f);
        const int32_t scale_b = (int32_t)nearbyintf(l->scale_b * 65536.0f);
        const int32_t fixed = (int32_t)nearbyintf(l->fixed * 65536.0f);
        FOR_PAIRS(add_pair(l, *a, *b, scale_a, scale_b, fixed))
    } else {
        FOR_PAIRS(saturate(add_exactly(l, *a, *b)))
    }
}
SHARED int32_t mul_exactly(const struct pairs *l, int32_t product) {
    return rounded_float((float)product * l->scale_a + l->fixed);
}
SHARED void mul(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    FOR_PAIRS(saturate(mul_exactly(l, (*a - l->zero_a) * (*b - l->zero_b))))
}
#else
SHARED void add(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    const float scale_a = l->scale_a, scale_b = l->scale_b, fixed = l->fixed;
    FOR_PAIRS(saturate(rounded_float(fmaf((float)*a, scale_a, fmaf((float)*b, scale_b, fixed)))))
}
SHARED void mul(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    const float scale = l->scale_a, zero = l->fixed;
    const int32_t zero_a = l->zero_a, zero_b = l->zero_b;
    FOR_PAIRS(saturate(rounded_float((float)((*a - zero_a) * (*b - zero_b)) * scale + zero)))
}
#endif
