/* Depthwise convolutions: a few rows at a time are copied with their padding, then no window meets an edge. */
SHARED void convolve_depthwise(const struct convolution *l, const int8_t *x, int8_t *y, packed *scratch) {
    WRITES;
    const int back = l->descending, plane = l->out_h * l->out_w, strips = (l->out_h + l->strip - 1) / l->strip;
    cell *const rows = rows_in(l, scratch);
    for (int i = 0; i < l->groups; i++) {
        const int group = back ? l->groups - 1 - i : i;
        const tap *taps = taps_of(l, group * l->out_channels, scratch);
        for (int j = 0; j < strips; j++) {
            const int first = (back ? strips - 1 - j : j) * l->strip;
            const int count = l->out_h - first < l->strip ? l->out_h - first : l->strip;
            const int top = first * l->stride_h - l->pad_top;
            const int needed = (count - 1) * l->stride_h + (l->kernel_h - 1) * l->dilation_h + 1;
            for (int h = 0; h < needed; h++) {
                const int8_t *const from = x + (group * l->in_h + top + h) * l->in_w;
                copy_row(l, rows + h * l->row_step, (unsigned)(top + h) < l->in_h ? from : 0);
            }
            for (int c = 0; c < l->out_channels; c++) {
                const int channel = group * l->out_channels + c;
                const int32_t bias = l->biases[channel];
                const float scale = l->scales[channel];
                if (l->out_channels > 1) taps = taps_of(l, channel, scratch);
                rows_of_windows(l, taps, rows, count, bias, scale, y + channel * plane + first * l->out_w);
            }
        }
    }
}
