/* Linear layers, row by row of their input. */
SHARED void connect(const struct linear *l, const int8_t *x, int8_t *y) {
    WRITES;
    for (uint32_t i = 0; i < l->rows; i++, x += l->inputs, y += l->outputs)
        products(l->weights, l->biases, l->scales, l->inputs, l->outputs, l->y_zero, x, y, 1);
}
