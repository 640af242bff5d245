/* Convolutions window by window: slower than four at a time, in an eighth of the memory. */
SHARED void copy_window(const struct convolution *l, const int8_t *x, int pixel, int8_t *to) {
    WRITES;
    const int h = pixel / l->out_w, top = h * l->stride_h - l->pad_top;
    const int left = (pixel - h * l->out_w) * l->stride_w - l->pad_left;
    for (int c = 0; c < l->in_channels; c++, x += l->in_h * l->in_w)
        for (int i = 0, row = top; i < l->kernel_h; i++, row += l->dilation_h)
            for (int j = 0, column = left; j < l->kernel_w; j++, column += l->dilation_w) {
                const int inside = (unsigned)row < l->in_h && (unsigned)column < l->in_w;
                *to++ = inside ? x[row * l->in_w + column] : (int8_t)l->x_zero;
            }
}
SHARED void convolve_narrow(const struct convolution *l, const int8_t *x, int8_t *y, packed *scratch) {
    WRITES;
    const int plane = l->out_h * l->out_w, count = l->groups * plane;
    int8_t *const window = (int8_t *)scratch;
    for (int i = 0; i < count; i++) {
        const int at = l->descending ? count - 1 - i : i, group = at / plane, pixel = at - group * plane;
        copy_window(l, x + group * l->in_channels * l->in_h * l->in_w, pixel, window);
        products(l->weights + group * l->weights_step, l->biases + group * l->channels_step,
                 l->scales + group * l->channels_step, l->depth, l->out_channels, l->y_zero, window,
                 y + group * l->out_channels * plane + pixel, plane);
    }
}
