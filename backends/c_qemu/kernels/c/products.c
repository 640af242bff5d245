/* All outputs of one vector, `step` apart. */
SHARED void products(const int8_t *weight, const int32_t *bias, const float *scale, int inputs, int outputs, int y_zero,
                     const int8_t *x, int8_t *y, int step) {
    WRITES;
    const int32_t zero = zero_point(y_zero);
#if ROWS_AT_ONCE > 1
    for (; outputs >= ROWS_AT_ONCE; outputs -= ROWS_AT_ONCE, weight += ROWS_AT_ONCE * ROW_BYTES(inputs)) {
        int32_t sums[ROWS_AT_ONCE];
        for (int i = 0; i < ROWS_AT_ONCE; i++) sums[i] = *bias++;
        dot_products(weight, x, inputs, ROWS_AT_ONCE, sums);
        for (int i = 0; i < ROWS_AT_ONCE; i++, y += step) *y = saturate(requantise(sums[i], factor_of(*scale++)) + zero);
    }
#endif
    for (; outputs > 0; outputs--, weight += ROW_BYTES(inputs), y += step) {
        int32_t sum = *bias++;
        dot_products(weight, x, inputs, 1, &sum);
        *y = saturate(requantise(sum, factor_of(*scale++)) + zero);
    }
}
