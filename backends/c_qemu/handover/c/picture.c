/* A picture of any size becomes the network's input: the largest middle part of its shape, scaled by the triangle filter
   that Pillow's BILINEAR is (support grows with the scale, so that no pixel is passed over). */
typedef struct {
    float middle, reach;
    uint32_t first, end;
} span;

static net_value prepared[NET_INPUT_CHANNELS * NET_INPUT_HEIGHT * NET_INPUT_WIDTH];

/* The pixels that one of the network's is made of. */
static span span_of(uint32_t at, float start, float scale, uint32_t size) {
    span made;
    float from, to;
    made.reach = scale < 1.0f ? 1.0f : scale;
    made.middle = start + ((float)at + 0.5f) * scale;
    from = made.middle - made.reach + 0.5f;
    to = made.middle + made.reach + 0.5f;
    made.first = from < 0.0f ? 0u : (uint32_t)from;
    made.end = to > (float)size ? size : (uint32_t)to;
    return made;
}

static float weight(const span *of, uint32_t at) {
    float apart = ((float)at + 0.5f - of->middle) / of->reach;
    if (apart < 0.0f) apart = -apart;
    return apart < 1.0f ? 1.0f - apart : 0.0f;
}

static void prepare(const uint8_t *pixels, uint32_t width, uint32_t height) {
    const int is_wide = (uint64_t)width * NET_INPUT_HEIGHT >= (uint64_t)height * NET_INPUT_WIDTH;
    const float scale = is_wide ? (float)height / NET_INPUT_HEIGHT : (float)width / NET_INPUT_WIDTH;
    const float left = ((float)width - scale * NET_INPUT_WIDTH) * 0.5f;
    const float top = ((float)height - scale * NET_INPUT_HEIGHT) * 0.5f;
    uint32_t x, y, c, row, column;
    for (y = 0; y < NET_INPUT_HEIGHT; y++) {
        const span rows = span_of(y, top, scale, height);
        for (x = 0; x < NET_INPUT_WIDTH; x++) {
            const span columns = span_of(x, left, scale, width);
            float sums[NET_INPUT_CHANNELS] = {0.0f}, total = 0.0f;
            for (row = rows.first; row < rows.end; row++) {
                const float of_row = weight(&rows, row);
                for (column = columns.first; column < columns.end; column++) {
                    const uint8_t *pixel = pixels + ((size_t)row * width + column) * NET_INPUT_CHANNELS;
                    const float share = of_row * weight(&columns, column);
                    total += share;
                    for (c = 0; c < NET_INPUT_CHANNELS; c++) sums[c] += share * (float)pixel[c];
                }
            }
            for (c = 0; c < NET_INPUT_CHANNELS; c++) {
                const int32_t value = (int32_t)(sums[c] / total + 0.5f);
                prepared[(c * NET_INPUT_HEIGHT + y) * NET_INPUT_WIDTH + x] = NET_ENCODE(value);
            }
        }
    }
}

void net_init(void) {
}

/* 1 and the network's outputs; 0 for an empty picture. */
static int answer(const uint8_t *pixels, uint32_t width, uint32_t height, net_value *outputs) {
    if (!width || !height) return 0;
    prepare(pixels, width, height);
    net_run(prepared, outputs);
    return 1;
}
