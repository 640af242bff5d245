void net_run(const net_value *input, net_value *outputs) {
    net((const net_value (*)[NET_INPUT_CHANNELS][NET_INPUT_HEIGHT][NET_INPUT_WIDTH])input,
        (net_value (*)[NET_OUTPUT_BYTES / sizeof(net_value)])outputs);
}

