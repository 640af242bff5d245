/* The whole window is kept, and worked out for every answer. */
static uint32_t seen; /* rows or columns, up to a whole window */

static void begin(void) {
    seen = 0;
}
static void move_on(void) {
    seen += seen < LENGTH;
}
int stream_result(int8_t *scores) {
    if (seen < LENGTH) return 0;
    net((void *)stream_window, (void *)scores);
    return 1;
}
const int8_t *stream_input(void) {
    return stream_window;
}
