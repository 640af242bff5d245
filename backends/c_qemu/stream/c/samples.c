/* A sample becomes a column of pixels, one a channel: SampleWindow in automcu_ray/signals/front_end.py. */

void stream_reset(void) {
    begin();
}

void stream_feed(const int16_t *samples, uint32_t count) {
    for (; count; count--, samples += CHANNELS) {
        for (uint32_t c = 0; c < CHANNELS; c++) {
            int8_t *const channel = stream_window + c * LENGTH;
            const int64_t pixel = ((int64_t)samples[c] * factors[c] + offsets[c]) >> 16;
            memmove(channel, channel + 1, LENGTH - 1);
            channel[LENGTH - 1] = (int8_t)((pixel < 0 ? 0 : pixel > 255 ? 255 : pixel) - 128);
        }
        move_on();
    }
}
