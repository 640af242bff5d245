/* Sums and products; the steps say how far apart an operand's neighbours are: 0 where it is repeated. */
struct pairs {
    uint32_t counts[3], steps_a[3], steps_b[3];
    float scale_a, scale_b, fixed; /* a product takes scale_a alone, its output's zero point is `fixed` */
    int16_t zero_a, zero_b;
};
#define FOR_ROWS(...) \
    for (uint32_t i = 0; i < l->counts[0]; i++) \
        for (uint32_t j = 0; j < l->counts[1]; j++) { \
            const int8_t *a = first + i * l->steps_a[0] + j * l->steps_a[1]; \
            const int8_t *b = second + i * l->steps_b[0] + j * l->steps_b[1]; \
            __VA_ARGS__ \
        }
#define FOR_PAIRS(...) \
    FOR_ROWS(for (uint32_t k = 0; k < l->counts[2]; k++, a += l->steps_a[2], b += l->steps_b[2]) *y++ = __VA_ARGS__;)

#if defined(WITHOUT_FLOATS)
INLINE real fixed_of(const struct pairs *l) {
    return times(bits_of(l->fixed) << 1 != 0, bits_of(l->fixed));
}
/* Two fused multiply-adds: two roundings. */
SHARED int32_t add_exactly(const struct pairs *l, int32_t a, int32_t b) {
    return nearest(sum_of(times(a, bits_of(l->scale_a)), sum_of(times(b, bits_of(l->scale_b)), fixed_of(l))));
}
#if !defined(NET_SMALL)
/* In 2^-16 first: exactly only where the sum lies next to a tie. */
INLINE int8_t add_pair(const struct pairs *l, int32_t a, int32_t b, int32_t scale_a, int32_t scale_b, int32_t fixed) {
    const int32_t sum = a * scale_a + b * scale_b + fixed;
    if (__builtin_expect((uint32_t)(sum & 0xFFFF) - 0x7E00u >= 0x400u, 1)) return saturate((sum + 0x8000) >> 16);
    return saturate(add_exactly(l, a, b));
}
INLINE int32_t in_16_bits(real x) {
    return nearest((real){x.value, x.exponent + 16});
}
#endif
SHARED void add(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    WRITES;
#if !defined(NET_SMALL)
    const int32_t scale_a = in_16_bits(times(1, bits_of(l->scale_a)));
    const int32_t scale_b = in_16_bits(times(1, bits_of(l->scale_b))), fixed = in_16_bits(fixed_of(l));
    if (scale_a < 32 << 16 && scale_b < 32 << 16 && fixed > -(8000 << 16) && fixed < 8000 << 16) {
        FOR_PAIRS(add_pair(l, *a, *b, scale_a, scale_b, fixed))
        return;
    }
#endif
    FOR_PAIRS(saturate(add_exactly(l, *a, *b)))
}
SHARED int32_t mul_exactly(const struct pairs *l, int32_t product) {
    return nearest(sum_of(to_24_bits(times(product, bits_of(l->scale_a))), fixed_of(l)));
}
#if !defined(NET_SMALL)
INLINE int8_t mul_pair(const struct pairs *l, int32_t product, factor by, int32_t zero) {
    int32_t made;
    return saturate(is_rounded(product, by, &made) ? made + zero : mul_exactly(l, product));
}
#endif
SHARED void mul(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    WRITES;
#if !defined(NET_SMALL)
    const factor by = factor_of(l->scale_a);
    const int32_t zero = nearest(fixed_of(l));
    if ((unsigned)(by.shift - 1) < 28u) {
        FOR_PAIRS(mul_pair(l, (*a - l->zero_a) * (*b - l->zero_b), by, zero))
        return;
    }
#endif
    FOR_PAIRS(saturate(mul_exactly(l, (*a - l->zero_a) * (*b - l->zero_b))))
}
#else
#if defined(__ARM_FEATURE_MVE) && !defined(NET_SMALL)
/* All whole fours of `count` sums; returns how many values those are. */
INLINE uint32_t add_fours(const int8_t *a, const int8_t *b, int8_t *y, uint32_t count, float scale_a, float scale_b,
                          float fixed) {
    const float32x4_t by_a = vdupq_n_f32(scale_a), by_b = vdupq_n_f32(scale_b), start = vdupq_n_f32(fixed);
    const int32x4_t least = vdupq_n_s32(-128), most = vdupq_n_s32(127);
    for (const int8_t *const end = a + (count & ~3u); a != end; a += 4, b += 4, y += 4) {
        const float32x4_t part = vfmaq_f32(start, vcvtq_f32_s32(vldrbq_s32(b)), by_b);
        const int32x4_t made = vcvtnq_s32_f32(vfmaq_f32(part, vcvtq_f32_s32(vldrbq_s32(a)), by_a));
        vstrbq_s32(y, vminq_s32(vmaxq_s32(made, least), most));
    }
    return count & ~3u;
}
#endif
SHARED void add(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    WRITES;
    const float scale_a = l->scale_a, scale_b = l->scale_b, fixed = l->fixed;
#if defined(__ARM_FEATURE_MVE) && !defined(NET_SMALL)
    if (l->steps_a[2] == 1 && l->steps_b[2] == 1) {
        FOR_ROWS(y += add_fours(a, b, y, l->counts[2], scale_a, scale_b, fixed);
                 for (uint32_t k = l->counts[2] & ~3u; k < l->counts[2]; k++) *y++ =
                     saturate(rounded_float(fmaf((float)a[k], scale_a, fmaf((float)b[k], scale_b, fixed))));)
        return;
    }
#endif
    FOR_PAIRS(saturate(rounded_float(fmaf((float)*a, scale_a, fmaf((float)*b, scale_b, fixed)))))
}
SHARED void mul(const struct pairs *l, const int8_t *first, const int8_t *second, int8_t *y) {
    WRITES;
    const float scale = l->scale_a, zero = l->fixed;
    const int32_t zero_a = l->zero_a, zero_b = l->zero_b;
    FOR_PAIRS(saturate(rounded_float((float)((*a - zero_a) * (*b - zero_b)) * scale + zero)))
}
#endif
