/* Any processor. */
typedef int8_t packed; /* [depth][4 pixels] */
typedef struct {
    packed *to;
} packing;
INLINE packing packing_of(const struct convolution *l, packed *to, int slot) {
    (void)l;
    return (packing){to + slot};
}
INLINE void put_value(packing *at, int32_t value) {
    *at->to = (packed)value;
    at->to += 4;
}
INLINE uint32_t *words_of(const struct convolution *l, packed *scratch) {
    (void)l;
    return (uint32_t *)scratch;
}
INLINE void unpack(const struct convolution *l, packed *scratch) {
    (void)l, (void)scratch;
}
INLINE void two_by_two(const int8_t *weight, const packed *pixel, int depth, int32_t *a, int32_t *b) {
    int32_t a0 = a[0], a1 = a[1], b0 = b[0], b1 = b[1];
    const int8_t *const end = pixel + 4 * depth;
    for (; pixel != end; pixel += 4, weight += 2) {
        const int32_t u = pixel[0], v = pixel[1], p = weight[0], q = weight[1];
        a0 += p * u, a1 += p * v, b0 += q * u, b1 += q * v;
    }
    a[0] = a0, a[1] = a1, b[0] = b0, b[1] = b1;
}
/* Weights: [channels / 2][depth][2 channels]. */
SHARED void multiply(const struct convolution *l, int group, const packed *pixels, int8_t *y, int plane, int count) {
    const int8_t *weight = l->weights + group * l->weights_step;
    for (int c = 0; c < l->out_channels; c += 2, y += 2 * plane, weight += 2 * l->depth) {
        const int at = group * l->channels_step + c;
        const int32_t first = l->biases[at], second = l->biases[at + 1];
        int32_t a[4] = {first, first, first, first}, b[4] = {second, second, second, second};
        for (int i = 0; i < count; i += 2) two_by_two(weight, pixels + i, l->depth, a + i, b + i);
        store(y, a[0], a[1], a[2], a[3], l->scales[at], zero_point(l->y_zero), count);
        if (c + 1 == l->out_channels) break;
        store(y + plane, b[0], b[1], b[2], b[3], l->scales[at + 1], zero_point(l->y_zero), count);
    }
}

typedef int8_t cell;
typedef int8_t tap;
INLINE cell *rows_in(const struct convolution *l, packed *scratch) {
    (void)l;
    return scratch;
}
INLINE const tap *taps_of(const struct convolution *l, int channel, packed *scratch) {
    (void)scratch;
    return l->weights + channel * l->kernel_h * l->kernel_w;
}
INLINE void widen(cell *to, const int8_t *from, uint32_t count) {
    memcpy(to, from, count);
}
SHARED void row_of_windows(const struct convolution *l, const tap *taps, const cell *row, int32_t bias, float scale,
                           int8_t *y) {
    const int step = l->stride_w, down = l->dilation_h * l->row_step, height = l->kernel_h, width = l->kernel_w;
    const int32_t zero = zero_point(l->y_zero);
    for (int left = l->out_w; left > 0; left -= 2, row += 2 * step, y += 2) {
        int32_t sums[2] = {bias, bias};
        const tap *weight = taps;
        const cell *from = row;
        for (int i = 0; i < height; i++, from += down)
            for (int j = 0; j < width; j++) {
                const int32_t value = *weight++;
                const cell *const at = from + j * l->dilation_w;
                sums[0] += value * at[0], sums[1] += value * at[step];
            }
        store_some(y, sums, scale, zero, left < 2 ? 1 : 2);
    }
}

/* Weights: [rows][inputs]. */
INLINE void dot_products(const int8_t *weight, const int8_t *x, int inputs, int rows, int32_t *sums) {
    for (const int8_t *const end = x + inputs; x != end; x++, weight++) {
        const int32_t value = *x;
#pragma GCC unroll 2
        for (int i = 0; i < rows; i++) sums[i] += value * weight[i * inputs];
    }
}
#define ROWS_AT_ONCE 2
#define ROW_BYTES(inputs) (inputs)
