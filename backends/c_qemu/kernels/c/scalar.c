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
/* Two channels by four pixels. */
INLINE void two_channels(const int8_t *weight, const packed *pixel, int depth, int32_t *a, int32_t *b) {
    int32_t a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3], b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];
    const packed *const end = pixel + 4 * depth;
#if defined(__thumb2__) /* all registers but one are in use, which GCC does not manage; the end lies on the stack */
    int32_t p, q, u, v;
    __asm__("1:\n ldrsb %[p], [%[weight]], #1\n ldrsb %[q], [%[weight]], #1\n"
            "ldrsb %[u], [%[pixel]], #1\n ldrsb %[v], [%[pixel]], #1\n"
            "mla %[a0], %[p], %[u], %[a0]\n mla %[b0], %[q], %[u], %[b0]\n ldrsb %[u], [%[pixel]], #1\n"
            "mla %[a1], %[p], %[v], %[a1]\n mla %[b1], %[q], %[v], %[b1]\n ldrsb %[v], [%[pixel]], #1\n"
            "mla %[a2], %[p], %[u], %[a2]\n mla %[b2], %[q], %[u], %[b2]\n ldr %[u], %[end]\n"
            "mla %[a3], %[p], %[v], %[a3]\n mla %[b3], %[q], %[v], %[b3]\n cmp %[pixel], %[u]\n bne 1b"
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2),
              [b3] "+r"(b3), [pixel] "+r"(pixel), [weight] "+r"(weight), [p] "=&r"(p), [q] "=&r"(q), [u] "=&r"(u),
              [v] "=&r"(v)
            : [end] "m"(end)
            : "cc", "memory");
#else
    for (; pixel != end; pixel += 4, weight += 2) {
        const int32_t p = weight[0], q = weight[1];
        a0 += p * pixel[0], a1 += p * pixel[1], a2 += p * pixel[2], a3 += p * pixel[3];
        b0 += q * pixel[0], b1 += q * pixel[1], b2 += q * pixel[2], b3 += q * pixel[3];
    }
#endif
    a[0] = a0, a[1] = a1, a[2] = a2, a[3] = a3, b[0] = b0, b[1] = b1, b[2] = b2, b[3] = b3;
}
/* Weights: [channels / 2][depth][2 channels]. */
SHARED void multiply(const struct convolution *l, int group, const packed *pixels, int8_t *y, int plane, int count) {
    WRITES;
    const int8_t *weight = l->weights + group * l->weights_step;
    for (int c = 0; c < l->out_channels; c += 2, y += 2 * plane, weight += 2 * l->depth) {
        const int at = group * l->channels_step + c;
        const int32_t first = l->biases[at], second = l->biases[at + 1];
        int32_t a[4] = {first, first, first, first}, b[4] = {second, second, second, second};
        two_channels(weight, pixels, l->depth, a, b);
        store(y, a[0], a[1], a[2], a[3], l->scales[at], zero_to_store(l->y_zero), count);
        if (c + 1 == l->out_channels) break;
        store(y + plane, b[0], b[1], b[2], b[3], l->scales[at + 1], zero_to_store(l->y_zero), count);
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
INLINE void copy_row(const struct convolution *l, cell *row, const int8_t *from) {
    memset(row, l->x_zero, l->row_step);
    if (from) memcpy(row + l->pad_left, from, l->in_w);
}
#if defined(__thumb__) && !defined(__thumb2__) || defined(NET_SMALL) /* Cortex-M0+: eight registers hold no more */
#define AT_ONCE 2
#else
#define AT_ONCE 4
#endif
/* Neighbours of a row, `AT_ONCE` at a time; rows have as many values as the last ones read. */
INLINE void row_of_size(const struct convolution *l, const tap *taps, const cell *row, int32_t bias, float scale,
                        int8_t *y, int height, int width, int step, int gap) {
    const int down = l->dilation_h * l->row_step;
    const int32_t zero = zero_to_store(l->y_zero);
    for (int left = l->out_w; left > 0; left -= AT_ONCE, row += AT_ONCE * step, y += AT_ONCE) {
        int32_t sums[4] = {bias, bias, bias, bias};
        const tap *weight = taps;
        const cell *from = row;
        for (int i = 0; i < height; i++, from += down)
#pragma GCC unroll 3
            for (int j = 0; j < width; j++) {
                const int32_t value = *weight++;
                const cell *const at = from + j * gap;
#pragma GCC unroll 4
                for (int k = 0; k < AT_ONCE; k++) sums[k] += value * at[k * step];
            }
#if AT_ONCE == 4
        store(y, sums[0], sums[1], sums[2], sums[3], scale, zero, left);
#else
        store_some(y, sums, scale, zero, left < 2 ? 1 : 2);
#endif
    }
}
SHARED void row_of_windows(const struct convolution *l, const tap *taps, const cell *row, int32_t bias, float scale,
                           int8_t *y) {
    WRITES;
#if !defined(NET_SMALL)
    const int is_common = l->kernel_h == 3 && l->kernel_w == 3 && l->dilation_w == 1;
    if (is_common && l->stride_w == 1) {
        row_of_size(l, taps, row, bias, scale, y, 3, 3, 1, 1);
    } else if (is_common && l->stride_w == 2) {
        row_of_size(l, taps, row, bias, scale, y, 3, 3, 2, 1);
    } else
#endif
        row_of_size(l, taps, row, bias, scale, y, l->kernel_h, l->kernel_w, l->stride_w, l->dilation_w);
}

INLINE void rows_of_windows(const struct convolution *l, const tap *taps, const cell *rows, int count, int32_t bias,
                            float scale, int8_t *y) {
    for (int h = 0; h < count; h++, rows += l->stride_h * l->row_step, y += l->out_w)
        row_of_windows(l, taps, rows, bias, scale, y);
}

/* Weights: [rows][inputs]. */
INLINE void dot_products(const int8_t *weight, const int8_t *x, int inputs, int rows, int32_t *sums) {
#if !defined(NET_SMALL)
    if (rows == 4 && inputs) {
        const int8_t *second = weight + inputs, *third = second + inputs, *fourth = third + inputs;
        int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3];
#if defined(__thumb__) && !defined(__thumb2__) /* eight registers for operands; sums lie in the others */
        int32_t at = 0, value, product;
        __asm__(".syntax unified\n1:\n ldrsb %[v], [%[x], %[i]]\n"
                "ldrsb %[p], [%[w0], %[i]]\n muls %[p], %[v]\n add %[a], %[p]\n"
                "ldrsb %[p], [%[w1], %[i]]\n muls %[p], %[v]\n add %[b], %[p]\n"
                "ldrsb %[p], [%[w2], %[i]]\n muls %[p], %[v]\n add %[c], %[p]\n"
                "ldrsb %[p], [%[w3], %[i]]\n muls %[p], %[v]\n add %[d], %[p]\n"
                "adds %[i], #1\n cmp %[i], %[end]\n bne 1b"
                : [a] "+h"(a), [b] "+h"(b), [c] "+h"(c), [d] "+h"(d), [i] "+l"(at), [v] "=&l"(value), [p] "=&l"(product)
                : [x] "l"(x), [w0] "l"(weight), [w1] "l"(second), [w2] "l"(third), [w3] "l"(fourth), [end] "h"(inputs)
                : "cc", "memory");
#else
        for (const int8_t *const end = x + inputs; x != end;) {
            const int32_t value = *x++;
            a += value * *weight++, b += value * *second++, c += value * *third++, d += value * *fourth++;
        }
#endif
        sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
        return;
    }
#endif
    for (const int8_t *const end = x + inputs; x != end; x++, weight++) {
        const int32_t value = *x;
        for (int i = 0; i < rows; i++) sums[i] += value * weight[i * inputs];
    }
}
#if defined(NET_SMALL)
#define ROWS_AT_ONCE 1
#else
#define ROWS_AT_ONCE 4
#endif
#define ROW_BYTES(inputs) (inputs)
