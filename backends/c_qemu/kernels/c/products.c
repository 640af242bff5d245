/* All outputs of one vector, `step` apart. */
SHARED void products(const int8_t *weight, const int32_t *bias, const float *scale, int inputs, int outputs, int y_zero,
                     const int8_t *x, int8_t *y, int step) {
    WRITES;
#if defined(FOUR_BYTES)
    const int32_t four_zeros = zero_to_store(y_zero);
    for (; outputs >= 4; outputs -= 4, weight += 4 * ROW_BYTES(inputs), bias += 4, scale += 4) {
        int32_t sums[4] = {bias[0], bias[1], bias[2], bias[3]};
        dot_products(weight, x, inputs, 4, sums);
        uint32_t bytes = four_bytes(sums[0], sums[1], sums[2], sums[3], scale[0], scale[1], scale[2], scale[3], four_zeros);
        for (int i = 0; i < 4; i++, y += step, bytes >>= 8) *y = (int8_t)bytes;
    }
#endif
    const int32_t zero = zero_point(y_zero);
#if ROWS_AT_ONCE > 1 && !defined(FOUR_BYTES)
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
