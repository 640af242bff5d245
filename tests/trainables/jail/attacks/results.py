"""Answers that nobody asked for, and graphs that no exporter wrote; what comes out is checked as every network is."""

_SAY = """
channel = socket.socket(fileno=os.dup(3))
def say(**message): channel.sendall(json.dumps(message).encode() + b'\\n')
def graph(data, kind='inference'): say(event='graph', kind=kind, size=len(data)); channel.sendall(data)
"""
_TRACE = """
import io, onnx
from onnx import helper, numpy_helper, TensorProto
from trainables.jail import candidate
real = candidate.trace
def forge(change):
    def trace(network, shape, training=False):
        model = onnx.load_from_string(real(network, shape, training=training))
        change(model)
        return model.SerializeToString()
    candidate.trace = trace
"""

_CHANGES = {
    "a_name_that_is_c": "m.graph.node[0].name = '*/\\n#include \"/etc/shadow\"\\n/*'",
    "an_attribute_that_is_c": "m.graph.node[0].attribute.append(helper.make_attribute('x', '*/ int evil; /*'))",
    "a_comment_that_is_c": "m.doc_string = m.graph.doc_string = '*/ int evil; /*'",
    "a_weight_from_a_file": "onnx.external_data_helper.set_external_data(m.graph.initializer[0], '/etc/shadow')",
    "a_loop": "m.graph.node[0].op_type = 'Loop'",
    "another_domain": "m.graph.node[0].domain = 'com.microsoft'",
    "a_function": "m.functions.add(name='f', domain='d')",
    "a_size_that_is_a_lie": "m.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1 << 40",
    "no_nodes": "m.graph.ClearField('node')",
    "a_circle": "m.graph.node[0].input[0] = m.graph.node[-1].output[0]",
    "twenty_thousand_nodes": "[m.graph.node.append(helper.make_node('Relu', ['image'], ['r%d' % i])) for i in range(20_000)]",
    "not_a_number": "t = m.graph.initializer[0]; t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) * float('nan'), t.name))",
    "infinite_weights": "t = m.graph.initializer[0]; t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) * float('inf'), t.name))",
    "a_future_version": "m.opset_import[0].version = 99; m.ir_version = 99",
    "training_information": "m.training_info.add()",
    "another_input": "m.graph.input.append(helper.make_tensor_value_info('b', 1, [1]))",
    "a_cut_weight": "m.graph.initializer[0].raw_data = b'1'",
}

ATTACKS = {name: f"{_TRACE}\ndef change(m): {line}\nforge(change)" for name, line in _CHANGES.items()} | {
    "no_network": _TRACE + "candidate.trace = lambda *a, **k: b'this is no network'",
    "nothing": "os._exit(0)",
    "an_empty_graph": _SAY + "graph(b'')\nos._exit(0)",
    "two_graphs": _SAY + "graph(b'x'); graph(b'x')\nos._exit(0)",
    "a_graph_of_a_terabyte": _SAY + "say(event='graph', kind='inference', size=1 << 40)\nos._exit(0)",
    "a_graph_of_less_than_nothing": _SAY + "say(event='graph', kind='inference', size=-1)\nos._exit(0)",
    "a_graph_without_an_end": _SAY
    + "say(event='graph', kind='inference', size=100)\nchannel.sendall(b'x')\nos._exit(0)",
    "a_graph_whose_size_is_a_word": _SAY + "say(event='graph', kind='inference', size='1e9')\nos._exit(0)",
    "a_graph_of_another_kind": _SAY + "graph(b'x', '../../etc/passwd')\nos._exit(0)",
    "half_a_line": _SAY + 'channel.sendall(b\'{"event": "graph"\')\nos._exit(0)',
    "brackets": _SAY + "channel.sendall(b'[' * 1_000_000 + b'\\n')\nos._exit(0)",
    "no_utf_8": _SAY + "channel.sendall(b'\\xff\\xfe\\n')\nos._exit(0)",
    "a_number_of_many_digits": _SAY + "channel.sendall(b'{\"event\": ' + b'9' * 100_000 + b'}\\n')\nos._exit(0)",
    "infinity": _SAY + 'channel.sendall(b\'{"event": "epoch", "loss": Infinity}\\n\')',
    "the_stage_before": _SAY + "say(event='stage', stage='start'); raise ValueError",
    "a_stage_that_is_none": _SAY
    + "say(event='stage', stage={'a': 1}); say(event='stage', stage=['x']); raise ValueError",
    "an_epoch_of_a_check": _SAY + "say(event='epoch', loss=0.0, last=True)",
    "predictions_of_a_check": _SAY + "say(event='predictions', classes=[0] * 10)",
    "a_failure_of_steering_characters": _SAY
    + "say(event='failed', resource='mind', error='\\x1b[2J\\n' * 1000)\nos._exit(0)",
    "a_failure_that_is_no_text": _SAY + "say(event='failed', resource=['x'], error={'a': ['b'] * 9999})\nos._exit(0)",
    "grows_in_training_alone": "if torch.initial_seed() != 0: nn.Linear = lambda a, b: nn.Sequential(nn.Flatten(), nn.LazyLinear(b))",
}
