struct pool {
    uint16_t channels, in_h, in_w, out_h, out_w;
    uint16_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int16_t pad_top, pad_left, x_zero, y_zero;
    float x_scale, y_scale; /* of a global mean x_scale is all */
    uint8_t descending, whole_windows; /* a mean over all values of its window, padding included */
};
/* Window positions inside the image along one axis: from the first to before the last. */
INLINE void clip(int start, int size, int kernel, int dilation, int *first, int *last) {
    *first = start < 0 ? (dilation - 1 - start) / dilation : 0;
    *last = start + (kernel - 1) * dilation < size ? kernel : start >= size ? 0 : (size - 1 - start) / dilation + 1;
}
#define FOR_WINDOWS(pool_window) \
    const int count = l->channels * l->out_h, back = l->descending; \
    for (int i = 0; i < count; i++) { \
        const int row = back ? count - 1 - i : i, c = row / l->out_h, h = row - c * l->out_h; \
        int top, bottom, left, right; \
        clip(h * l->stride_h - l->pad_top, l->in_h, l->kernel_h, l->dilation_h, &top, &bottom); \
        const int8_t *from = x + (c * l->in_h + h * l->stride_h - l->pad_top) * l->in_w; \
        for (int j = 0; j < l->out_w; j++) { \
            const int w = back ? l->out_w - 1 - j : j, start = w * l->stride_w - l->pad_left; \
            clip(start, l->in_w, l->kernel_w, l->dilation_w, &left, &right); \
            y[row * l->out_w + w] = pool_window(l, from + start, top, bottom, left, right); \
        } \
    }

INLINE int8_t largest(const struct pool *l, const int8_t *from, int top, int bottom, int left, int right) {
    int32_t most = -128;
    for (int h = top; h < bottom; h++)
        for (int w = left; w < right; w++) {
            const int32_t value = from[h * l->dilation_h * l->in_w + w * l->dilation_w];
            most = value > most ? value : most;
        }
    return (int8_t)most;
}
SHARED void max_pool(const struct pool *l, const int8_t *x, int8_t *y) {
    WRITES;
    FOR_WINDOWS(largest)
}

#if defined(WITHOUT_FLOATS)
#define SLOWLY SHARED
#else
#define SLOWLY INLINE
#endif
/* A float sum of real values, row by row; the zero point is added before rounding. */
SLOWLY int8_t mean(const struct pool *l, const int8_t *from, int top, int bottom, int left, int right) {
    const int values = l->whole_windows ? l->kernel_h * l->kernel_w : (bottom - top) * (right - left);
    if (values == 0) return (int8_t)l->y_zero;
#if defined(WITHOUT_FLOATS) && defined(NET_SMALL)
    const uint32_t scale = bits_of(l->x_scale);
    real sum = {0, 0};
    for (int h = top; h < bottom; h++)
        for (int w = left; w < right; w++)
            sum = sum_of(sum, to_24_bits(times(from[h * l->dilation_h * l->in_w + w * l->dilation_w] - l->x_zero, scale)));
    sum = quotient(quotient(sum, (real){values, 0}), times(1, bits_of(l->y_scale)));
    return saturate(nearest(sum_of(sum, (real){l->y_zero, 0})));
#else
    float sum = 0.0f;
    for (int h = top; h < bottom; h++)
        for (int w = left; w < right; w++)
            sum += l->x_scale * (float)(from[h * l->dilation_h * l->in_w + w * l->dilation_w] - l->x_zero);
    return saturate(rounded_float(sum / (float)values / l->y_scale + (float)l->y_zero));
#endif
}
#if defined(WITHOUT_FLOATS) && !defined(NET_SMALL)
/* What makes a whole window's sum of integers its value; at most `doubt` (in 2^-32, 0: unknown) from what floats give. */
typedef struct {
    int32_t significand; /* 24 bits */
    int shift;           /* to 2^-32 */
    uint32_t doubt;
} averaging;
/* With v values of at most 255, r = x_scale / y_scale: v products and sums are off by 2^-24 of 255 r (v / 2 + 1.5),
   three quotients and sums and the factor's two by 255 r + 128 each at most. */
INLINE averaging averaging_of(const struct pool *l) {
    const int values = l->kernel_h * l->kernel_w;
    const float ratio = l->x_scale / l->y_scale;
    const int above = (int)(bits_of(ratio) >> 23) - 126; /* ratio < 2^above */
    const uint32_t bits = bits_of(ratio / (float)values);
    averaging made = {(int32_t)((bits & 0x7FFFFFu) | 0x800000u), (int)(bits >> 23) - 118, 0};
    if (above <= 6 && values <= 1024 && made.shift >= -60 && made.shift <= 12)
        made.doubt = 256 * ((255u << (above > 0 ? above : 0)) * (uint32_t)(values / 2 + 8) + 512);
    if (made.doubt >> 30) made.doubt = 0;
    return made;
}
INLINE int8_t mean_by(const struct pool *l, averaging by, const int8_t *from, int top, int bottom, int left, int right) {
    const int count = (bottom - top) * (right - left);
    if (by.doubt && (l->whole_windows || count == l->kernel_h * l->kernel_w)) {
        int32_t sum = -l->x_zero * count;
        for (int h = top; h < bottom; h++)
            for (int w = left; w < right; w++) sum += from[h * l->dilation_h * l->in_w + w * l->dilation_w];
        const int64_t product = (int64_t)sum * by.significand;
        const int64_t value = by.shift > 0 ? product * (1 << by.shift) : product >> -by.shift;
        const uint32_t fraction = (uint32_t)value;
        if (__builtin_expect(fraction - 0x80000000u + by.doubt >= 2 * by.doubt, 1))
            return saturate((int32_t)(value >> 32) + (int32_t)(fraction >> 31) + l->y_zero);
    }
    return mean(l, from, top, bottom, left, right);
}
#define mean_of(l, ...) mean_by(l, by, __VA_ARGS__)
#else
#define mean_of mean
#endif
SHARED void average_pool(const struct pool *l, const int8_t *x, int8_t *y) {
    WRITES;
#if defined(WITHOUT_FLOATS) && !defined(NET_SMALL)
    const averaging by = averaging_of(l);
#endif
    FOR_WINDOWS(mean_of)
}

SHARED void global_pool(const struct pool *l, const int8_t *x, int8_t *y) {
    WRITES;
    const int size = l->in_h * l->in_w;
    const factor by = factor_of(l->x_scale);
    for (int c = 0; c < l->channels; c++) {
        int32_t sum = -l->x_zero * size;
        for (int i = 0; i < size; i++) sum += *x++;
        *y++ = saturate(requantise(sum, by) + zero_point(l->y_zero));
    }
}
