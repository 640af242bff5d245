/* Layers with weights. The input's zero point is folded into the biases; padding is the zero point itself. */
struct convolution {
    const int8_t *weights;
    const int32_t *biases;
    const float *scales;
    uint32_t weights_step;                                     /* from group to group; DSP, depthwise: cells of the ring */
    uint16_t channels_step, groups, in_channels, out_channels; /* of one group; the step of biases and scales */
    uint16_t in_h, in_w, out_h, out_w;
    uint16_t depth, strip, row_step; /* padded depth of a window; depthwise: output rows at once, cells of a row; Helium:
                                        channels and entries of the table of places */
    uint16_t span_w;                 /* depthwise: columns of a window, dilation included */
    uint8_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, by_rows, descending;
    int16_t pad_top, pad_left, x_zero, y_zero;
};
struct linear {
    const int8_t *weights;
    const int32_t *biases;
    const float *scales;
    uint32_t rows; /* of the input */
    uint16_t inputs, outputs;
    int16_t y_zero;
};
