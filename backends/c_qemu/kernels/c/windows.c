/* Windows of four pixels, whatever they are, value by value; word by word where they are neighbours of a row. */

/* One pixel's window, value by value: any stride, any width. */
SHARED void gather(const struct convolution *l, const int8_t *x, int pixel, int slot, packed *to) {
    WRITES;
    const int h = pixel / l->out_w, top = h * l->stride_h - l->pad_top;
    const int left = (pixel - h * l->out_w) * l->stride_w - l->pad_left;
    packing at = packing_of(l, to, slot);
    for (int c = 0; c < l->in_channels; c++, x += l->in_h * l->in_w)
        for (int i = 0, row = top; i < l->kernel_h; i++, row += l->dilation_h)
            for (int j = 0, column = left; j < l->kernel_w; j++, column += l->dilation_w) {
                const int inside = (unsigned)row < l->in_h && (unsigned)column < l->in_w;
                put_value(&at, inside ? x[row * l->in_w + column] : l->x_zero);
            }
}

/* Four neighbours from column `at` on, the zero point where that is outside; rows have at least four columns. */
SHARED uint32_t word(const int8_t *row, int at, int width, uint32_t zeros) {
    if ((unsigned)at <= (unsigned)(width - 4)) return load(row + at);
    if (at <= -4 || at >= width) return zeros;
    if (at < 0) return load(row) << (-8 * at) | zeros >> (32 + 8 * at);
    const int beyond = 8 * (at + 4 - width);
    return load(row + width - 4) >> beyond | zeros << (32 - beyond);
}
INLINE uint32_t every_second(uint32_t a, uint32_t b) {
    a &= 0x00FF00FFu, b &= 0x00FF00FFu;
    return ((a | a >> 8) & 0xFFFF) | (b | b >> 8) << 16;
}
/* The windows of four neighbours of a row, a word of four pixels for each value; strides 1 and 2. */
SHARED void gather_row(const struct convolution *l, const int8_t *x, int h, int w, packed *scratch) {
    WRITES;
    uint32_t *to = words_of(l, scratch);
    const int width = l->in_w, gap = l->dilation_w, left = w * l->stride_w - l->pad_left, end = left + l->kernel_w * gap;
    const int twice = l->stride_w == 2, inside = left >= 0 && end - gap + (twice ? 8 : 4) <= width;
    if (inside && l->kernel_h * l->kernel_w == 1 && !twice) {
        x += (h * l->stride_h - l->pad_top) * width + left;
        for (int c = l->in_channels; c--; x += l->in_h * width) *to++ = load(x);
    } else {
        const uint32_t zeros = (uint8_t)l->x_zero * 0x01010101u;
        for (int c = l->in_channels; c--; x += l->in_h * width) {
            int y = h * l->stride_h - l->pad_top;
            for (int i = l->kernel_h; i--; y += l->dilation_h) {
                const int8_t *const row = x + y * width;
                if ((unsigned)y >= l->in_h) {
                    for (int j = left; j != end; j += gap) *to++ = zeros;
                } else if (inside && twice) {
                    for (int j = left; j != end; j += gap) *to++ = every_second(load(row + j), load(row + j + 4));
                } else if (inside) {
                    for (int j = left; j != end; j += gap) *to++ = load(row + j);
                } else if (twice) {
                    for (int j = left; j != end; j += gap)
                        *to++ = every_second(word(row, j, width, zeros), word(row, j + 4, width, zeros));
                } else {
                    for (int j = left; j != end; j += gap) *to++ = word(row, j, width, zeros);
                }
            }
        }
    }
    unpack(l, scratch);
}
INLINE void prepare(const struct convolution *l, packed *scratch) {
    (void)l, (void)scratch;
}
INLINE void pack(const struct convolution *l, const int8_t *x, int row, int first, int count, packed *scratch) {
    if (l->by_rows) {
        gather_row(l, x, row, first, scratch);
    } else {
        for (int slot = 0; slot < count; slot++) gather(l, x, first + slot, slot, scratch);
    }
}
