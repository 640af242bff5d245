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

/* A float sum of real values, row by row; the zero point is added before rounding. */
INLINE int8_t mean(const struct pool *l, const int8_t *from, int top, int bottom, int left, int right) {
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
SHARED void average_pool(const struct pool *l, const int8_t *x, int8_t *y) {
    WRITES;
    FOR_WINDOWS(mean)
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
