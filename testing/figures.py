"""Figures and what people read of them: the same from Python and from the dashboard's JavaScript."""

from __future__ import annotations

from typing import Final

PERCENT: Final = {
    0.0: "0 %",
    1e-9: "< 1 %",
    0.00499: "< 1 %",
    0.005: "1 %",
    0.125: "13 %",
    0.489: "49 %",
    0.5: "50 %",
    0.994: "99 %",
    0.996: "> 99 %",
    0.99999: "> 99 %",
    1.0: "100 %",
    1.5: "150 %",
}
NUMBER: Final = {
    0.0: "0",
    0.9: "0.9",
    0.97493: "0.9749",
    0.980501: "0.9805",
    0.99996: "0.99996",
    -0.99999996: "-0.99999996",
    1.0625: "1.063",
    -1.0625: "-1.063",
    0.1 + 0.2: "0.3",
    12.0: "12",
    100.0: "100",
    999.94: "999.9",
    999.96: "1,000",
    1234.5: "1,235",
    -98765.4: "-98,765",
    2.5e6: "2,500,000",
    0.001: "0.001",
    0.00099999: "0.001",
    0.00012345: "1.234e-4",
    1e-4: "1e-4",
    -3e-300: "-3e-300",
    1.5e12: "1.5e+12",
    2e300: "2e+300",
}
COMPARED: Final = {
    (0.97493, 0.980501): ("0.9749", "0.9805"),
    (0.97493, 0.97494): ("0.97493", "0.97494"),
    (0.9, 0.9): ("0.9", "0.9"),
    (0.9, 0.90004): ("0.9", "0.90004"),
    (1234.5, 1234.6): ("1,234.5", "1,234.6"),
    (1.2341e-5, 1.2342e-5): ("1.2341e-5", "1.2342e-5"),
    (0.3, 0.1 + 0.2): ("0.3", "0.30000000000000004"),
    (0.0, 1e-20): ("0", "1e-20"),
}
SIZE: Final = {
    0: "0 B",
    999: "999 B",
    1000: "0.977 KiB",
    1536: "1.5 KiB",
    1_048_500: "1 MiB",
    25_232_932_864: "23.5 GiB",
    270_582_939_648: "252 GiB",
    2**60: "1,048,576 TiB",
}
URL: Final = {"127.0.0.1:8000": "http://127.0.0.1:8000", "https://10.0.0.5:7448": "https://10.0.0.5:7448"}
# The same in the dashboard: a script of a page, what it is given, and what it finds.
READ_BY_A_PAGE: Final = """async ([parts, numbers, pairs, sizes, addresses]) => {
  const { bytes, compared, number, percent, url } = await import("/assets/js/format.js");
  const pair = (each) => compared(...each);
  const figures = [parts.map((each) => percent(each)), numbers.map((each) => number(each)), pairs.map(pair)];
  return [...figures, sizes.map(bytes), addresses.map(url)];
}"""
GIVEN: Final = [[*PERCENT], [*NUMBER], [[*pair] for pair in COMPARED], [*SIZE], [*URL]]
READ: Final = [
    *([*PERCENT.values()], [*NUMBER.values()], [[*words] for words in COMPARED.values()]),
    *([*SIZE.values()], [*URL.values()]),
]

# Many long curves in one plot, and one that grows, as the page takes points out of them.
CURVES_OF_A_PAGE: Final = """async () => {
  const { alignCurves, withPoint } = await import("/assets/js/decimate.js");
  const value = (at, top) => (at === 1234 ? top : at === 777 ? -top : at % 7);
  const curve = (top) => Array.from({ length: 10000 }, (_, at) => [at, value(at, top)]);
  const [xs, ...columns] = alignCurves(Array.from({ length: 50 }, (_, number) => curve(100 + number)), 300);
  let grown = [];
  for (const point of curve(100)) grown = withPoint(grown, point, 1600);
  const values = grown.map((point) => point[1]);
  return {
    lengths: [...new Set([xs, ...columns].map((each) => each.length))],
    extremes: columns.map((each) => [Math.min(...each), Math.max(...each)]),
    grown: grown.length, least: Math.min(...values), greatest: Math.max(...values), last: grown.at(-1),
    ordered: grown.every((point, index) => index === 0 || grown[index - 1][0] < point[0]),
  };
}"""
