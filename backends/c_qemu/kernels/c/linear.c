SHARED void connect(const struct linear *l, const int8_t *x, int8_t *y) {
    const int32_t zero = zero_point(l->y_zero);
    for (uint32_t i = 0; i < l->rows; i++, x += l->inputs) {
        const int8_t *weight = l->weights;
        int at = 0;
        for (; at + ROWS_AT_ONCE <= l->outputs; at += ROWS_AT_ONCE, weight += ROWS_AT_ONCE * ROW_BYTES(l->inputs)) {
            int32_t sums[ROWS_AT_ONCE];
            for (int j = 0; j < ROWS_AT_ONCE; j++) sums[j] = l->biases[at + j];
            dot_products(weight, x, l->inputs, ROWS_AT_ONCE, sums);
            for (int j = 0; j < ROWS_AT_ONCE; j++)
                *y++ = saturate(requantise(sums[j], factor_of(l->scales[at + j])) + zero);
        }
        for (; at < l->outputs; at++, weight += ROW_BYTES(l->inputs)) {
            int32_t sum = l->biases[at];
            dot_products(weight, x, l->inputs, 1, &sum);
            *y++ = saturate(requantise(sum, factor_of(l->scales[at])) + zero);
        }
    }
}
