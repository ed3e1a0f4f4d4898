"""The inference server: ONNX models behind the Open Inference Protocol, hot-swapped off the request path."""
