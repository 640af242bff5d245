/* Products of two computed matrices: a strip of columns of the second is packed as weights, then goes by all rows. */
struct matrices {
    uint32_t a_step, b_step;   /* from product to product */
    uint32_t b_down, b_across; /* from row to row of the second, from column to column */
    uint16_t count, rows, depth, columns, strip;
    int16_t a_zero, b_zero, y_zero;
    float scale;
};
/* Columns as `products` reads weights; `sums` are theirs. */
SHARED void pack_columns(const struct matrices *l, const int8_t *b, int count, int32_t *sums, int8_t *to) {
    WRITES;
#if defined(FOURS_TOGETHER)
    const int together = count & ~3;
    memset(to, 0, (uint32_t)count * ROW_BYTES(l->depth));
#endif
    for (int j = 0; j < count; j++, b += l->b_across) {
        int32_t sum = 0;
        const int8_t *from = b;
#if defined(FOURS_TOGETHER)
        const int apart = j < together ? 16 : 4;
        int8_t *at = to + (j < together ? (j & ~3) * ROW_BYTES(l->depth) + 4 * (j & 3) : j * ROW_BYTES(l->depth));
        for (int k = 0; k < l->depth; k++, from += l->b_down) {
            sum += *from;
            at[(k >> 2) * apart + (k & 3)] = *from;
        }
#else
        for (int k = 0; k < l->depth; k++, from += l->b_down) {
            sum += *from;
            *to++ = *from;
        }
#endif
        sums[j] = sum;
    }
}
SHARED void multiply_matrices(const struct matrices *l, const int8_t *a, const int8_t *b, int8_t *y, packed *scratch) {
    WRITES;
    int32_t *const biases = (int32_t *)scratch, *const sums = biases + l->strip;
    float *const scales = (float *)(sums + l->strip);
    int8_t *const weights = (int8_t *)(scales + l->strip);
    for (int j = 0; j < l->strip; j++) scales[j] = l->scale;
    for (int i = 0; i < l->count; i++, a += l->a_step, b += l->b_step)
        for (int first = 0; first < l->columns; first += l->strip) {
            const int some = l->columns - first < l->strip ? l->columns - first : l->strip;
            pack_columns(l, b + first * l->b_across, some, sums, weights);
            const int8_t *row = a;
            int8_t *to = y + i * l->rows * l->columns + first;
            for (int r = 0; r < l->rows; r++, row += l->depth, to += l->columns) {
                int32_t of_row = l->a_zero * l->depth;
                for (int k = 0; k < l->depth; k++) of_row -= row[k];
                for (int j = 0; j < some; j++) biases[j] = l->b_zero * of_row - l->a_zero * sums[j];
                products(weights, biases, scales, l->depth, some, l->y_zero, row, to, 1);
            }
        }
}
