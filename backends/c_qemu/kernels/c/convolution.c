/* Convolutions: four pixels at a time are packed, whatever the window, then multiplied with all weights of the group. */
SHARED void convolve(const struct convolution *l, const int8_t *x, int8_t *y, packed *scratch) {
    WRITES;
    const int plane = l->out_h * l->out_w, width = l->by_rows ? l->out_w : plane, back = l->descending;
    const int each = (width + 3) / 4, blocks = plane / width * each;
    prepare(l, scratch);
    for (int i = 0; i < l->groups; i++) {
        const int group = back ? l->groups - 1 - i : i;
        const int8_t *from = x + group * l->in_channels * l->in_h * l->in_w;
        int8_t *to = y + group * l->out_channels * plane;
        for (int j = 0; j < blocks; j++) {
            const int block = back ? blocks - 1 - j : j, row = block / each, first = 4 * (block - row * each);
            const int count = width - first < 4 ? width - first : 4;
            pack(l, from, row, first, count, scratch);
            multiply(l, group, scratch, to + row * width + first, plane, count);
        }
    }
}
