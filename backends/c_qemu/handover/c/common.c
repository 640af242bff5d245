void net_run(const net_value *input, net_value *scores) {
    net((const net_value (*)[NET_INPUT_CHANNELS][NET_INPUT_HEIGHT][NET_INPUT_WIDTH])input,
        (net_value (*)[NET_CLASSES])scores);
}

/* The first of equals wins. */
static int largest(const net_value *scores) {
    int best = 0, at;
    for (at = 1; at < NET_CLASSES; at++)
        if (scores[at] > scores[best]) best = at;
    return best;
}
