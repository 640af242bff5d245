/* A frame of sound becomes a row of pixels: automcu_ray/signals/spectrum.py, in the same integers. */

static int16_t frame[FRAME];
static uint32_t filled;
static int32_t re[FFT / 2], im[FFT / 2];

static int32_t shifted(int64_t value, int bits) {
    return (int32_t)((value + ((int64_t)1 << (bits - 1))) >> bits);
}

/* Even samples are real parts, odd ones imaginary parts, in bit-reversed order. */
static void load_frame(void) {
    for (uint32_t k = 0; k < FFT / 2; k++) {
        uint32_t to = 0;
        for (uint32_t bit = 1, from = k; bit < FFT / 2; bit <<= 1, from >>= 1) to = to << 1 | (from & 1);
        const uint32_t at = 2 * k;
        re[to] = at < FRAME ? shifted(frame[at] * hann[at], 15) : 0;
        im[to] = at + 1 < FRAME ? shifted(frame[at + 1] * hann[at + 1], 15) : 0;
    }
}

static void transform(void) {
    for (uint32_t size = 2; size <= FFT / 2; size *= 2) {
        const uint32_t half = size / 2, step = FFT / size;
        for (uint32_t j = 0; j < half; j++) {
            const int64_t cos = cosine[j * step], sin = sine[j * step];
            for (uint32_t a = j; a < FFT / 2; a += size) {
                const uint32_t b = a + half;
                const int32_t turned_re = shifted(re[b] * cos - im[b] * sin, 15);
                const int32_t turned_im = shifted(re[b] * sin + im[b] * cos, 15);
                re[b] = re[a] - turned_re;
                im[b] = im[a] - turned_im;
                re[a] += turned_re;
                im[a] += turned_im;
            }
        }
    }
}

/* |X|^2 of the real frame, from the transform of half its length. */
static uint64_t power(uint32_t k) {
    const uint32_t back = k ? FFT / 2 - k : 0;
    const int32_t even_re = re[k] + re[back], even_im = im[k] - im[back];
    const int64_t odd_re = im[k] + im[back], odd_im = re[back] - re[k];
    const int64_t real = (even_re + shifted(odd_re * cosine[k] - odd_im * sine[k], 15)) >> 1;
    const int64_t imaginary = (even_im + shifted(odd_re * sine[k] + odd_im * cosine[k], 15)) >> 1;
    return (uint64_t)(real * real) + (uint64_t)(imaginary * imaginary);
}

/* An energy on the scale of decibels: 0 to 255, with 7 bits of fraction. */
static int32_t level(uint64_t energy) {
    if (energy == 0) energy = 1;
    const int octave = 63 - __builtin_clzll(energy);
    const uint32_t mantissa = (uint32_t)(octave < 6 ? energy << (6 - octave) : energy >> (octave - 6)) - 64;
    const int64_t scaled = ((int64_t)((octave << 8) + logarithms[mantissa]) * GAIN + (BIAS)) >> 16;
    return scaled < 0 ? 0 : scaled > 255 << 7 ? 255 << 7 : (int32_t)scaled;
}

#if COEFFICIENTS
static int16_t levels[MELS];
#endif

static void put(uint32_t band, uint64_t energy, int8_t *row) {
#if COEFFICIENTS
    (void)row;
    levels[band] = (int16_t)(level(energy) - (128 << 7));
#else
    row[band] = (int8_t)(shifted(level(energy), 7) - 128);
#endif
}

static void make_row(int8_t *row) {
    load_frame();
    transform();
    uint64_t below = 0, above = 0; /* of the bands on whose falling and rising flanks a frequency lies */
    uint32_t band = 0;
    for (uint32_t k = 0; k < FFT / 2; k++) {
        for (; band < upper_band[k]; band++, below = above, above = 0)
            if (band) put(band - 1, below, row);
        const uint64_t found = power(k);
        above += found * rising[k];
        below += found * (128u - rising[k]);
    }
    for (; band <= MELS; band++, below = above, above = 0)
        if (band) put(band - 1, below, row);
#if COEFFICIENTS
    for (uint32_t c = 0; c < COEFFICIENTS; c++) {
        int32_t sum = 0;
        for (uint32_t m = 0; m < MELS; m++) sum += levels[m] * cosines[c][m];
        const int32_t pixel = shifted(sum, 20);
        row[c] = (int8_t)(pixel < -128 ? -128 : pixel > 127 ? 127 : pixel);
    }
#endif
}

void stream_reset(void) {
    filled = 0;
    begin();
}

void stream_feed(const int16_t *samples, uint32_t count) {
    while (count) {
        const uint32_t taken = count < FRAME - filled ? count : FRAME - filled;
        memcpy(frame + filled, samples, taken * sizeof *samples);
        filled += taken;
        samples += taken;
        count -= taken;
        if (filled < FRAME) return;
        memmove(stream_window, stream_window + WIDTH, (LENGTH - 1) * WIDTH);
        make_row(stream_window + (LENGTH - 1) * WIDTH);
        move_on();
        memmove(frame, frame + HOP, (FRAME - HOP) * sizeof *frame);
        filled = FRAME - HOP;
    }
}
