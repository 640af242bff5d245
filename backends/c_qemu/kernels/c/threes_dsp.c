/* Convolutions three wide with the DSP extension, strides 1 and 2. Of four neighbours' windows SXTB16 gives the first and
 * third values at once; second values are paired with those of the next row. Weights lie in this order. */
typedef struct {
    int from; /* where four values of a row are loaded, and what is made of them: the zero point where that is outside */
    uint32_t turn, keep, fill;
} edge;
INLINE edge edge_at(int at, int width, uint32_t zeros) {
    const int beyond = at + 4 - width;
    edge made = {at, 0, ~0u, 0};
    if (at <= -4 || at >= width) {
        made = (edge){0, 0, 0, 0};
    } else if (at < 0) {
        made = (edge){0, (uint32_t)(32 + 8 * at), ~0u << (-8 * at), 0};
    } else if (beyond > 0) {
        made = (edge){width - 4, (uint32_t)(8 * beyond), ~0u >> (8 * beyond), 0};
    }
    made.fill = zeros & ~made.keep;
    return made;
}
INLINE uint32_t at_edge(const int8_t *row, const edge *e) {
    const uint32_t value = load(row + e->from);
    return ((value >> e->turn | value << (-e->turn & 31)) & e->keep) | e->fill;
}
/* First and third values of four pixels from words that begin two values apart; `middle` gets the second ones of two. */
INLINE void put_row(packed *to, uint32_t a, uint32_t b, uint32_t c, uint32_t d, int twice, uint32_t *middle) {
    to[0] = sxtb16(a), middle[0] = sxtb16_high(a);
    if (twice) {
        to[1] = sxtb16(b), to[2] = sxtb16(c), to[3] = sxtb16(d), middle[1] = sxtb16_high(c);
    } else {
        to[1] = middle[0], to[2] = middle[1] = sxtb16(b), to[3] = sxtb16_high(b);
    }
}
INLINE void gather_threes(const struct convolution *l, const int8_t *x, int h, int w, packed *to, int twice) {
    const int width = l->in_w, left = w * l->stride_w - l->pad_left;
    const int inside = left >= 0 && left + (twice ? 10 : 6) <= width;
    const uint32_t zeros = (uint8_t)l->x_zero * 0x01010101u;
    edge edges[4];
    for (int i = 0; i < (twice ? 4 : 2); i++) edges[i] = edge_at(left + 2 * i, width, zeros);
    uint32_t held[2] = {0, 0}, middle[2];
    int is_second = 0;
    for (int c = l->in_channels; c; c--, x += l->in_h * width) {
        int y = h * l->stride_h - l->pad_top;
        for (int i = l->kernel_h; i; i--, y += l->dilation_h) {
            const int8_t *const row = x + y * width;
            if ((unsigned)y >= l->in_h) {
                put_row(to, zeros, zeros, zeros, zeros, twice, middle);
            } else if (inside) {
                const int8_t *const at = row + left;
                put_row(to, load(at), load(at + 2), twice ? load(at + 4) : 0, twice ? load(at + 6) : 0, twice, middle);
            } else {
                put_row(to, at_edge(row, edges), at_edge(row, edges + 1), twice ? at_edge(row, edges + 2) : 0,
                        twice ? at_edge(row, edges + 3) : 0, twice, middle);
            }
            to += 4;
            if (is_second) {
                const uint32_t p = high_halves(held[0], middle[0]), q = low_halves(held[1], middle[1]);
                to[0] = low_halves(held[0], middle[0]), to[3] = high_halves(held[1], middle[1]);
                to[1] = twice ? p : q, to[2] = twice ? q : p;
                to += 4;
            }
            held[0] = middle[0], held[1] = middle[1], is_second ^= 1;
        }
    }
    if (is_second) { /* the last row's second values; the weights beside theirs are 0 */
        to[0] = held[0], to[3] = held[1] >> 16;
        to[1] = twice ? held[0] >> 16 : held[1], to[2] = twice ? held[1] : held[0] >> 16;
    }
}
SHARED void gather_next(const struct convolution *l, const int8_t *x, int h, int w, packed *to) {
    WRITES;
    gather_threes(l, x, h, w, to, 0);
}
SHARED void gather_apart(const struct convolution *l, const int8_t *x, int h, int w, packed *to) {
    WRITES;
    gather_threes(l, x, h, w, to, 1);
}
SHARED void convolve_threes(const struct convolution *l, const int8_t *x, int8_t *y, packed *scratch) {
    WRITES;
    const int plane = l->out_h * l->out_w, back = l->descending, each = (l->out_w + 3) / 4, blocks = l->out_h * each;
    for (int i = 0; i < l->groups; i++) {
        const int group = back ? l->groups - 1 - i : i;
        const int8_t *from = x + group * l->in_channels * l->in_h * l->in_w;
        int8_t *to = y + group * l->out_channels * plane;
        for (int j = 0; j < blocks; j++) {
            const int block = back ? blocks - 1 - j : j, row = block / each, first = 4 * (block - row * each);
            const int count = l->out_w - first < 4 ? l->out_w - first : 4;
            if (l->stride_w == 1) {
                gather_next(l, from, row, first, scratch);
            } else {
                gather_apart(l, from, row, first, scratch);
            }
            multiply(l, group, scratch, to + row * l->out_w + first, plane, count);
        }
    }
}
