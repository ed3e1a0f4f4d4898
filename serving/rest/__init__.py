"""HTTP: parsing, routes and the JSON and binary encodings of the Open Inference Protocol."""
