// From an image to the numbers that a model takes, by the shape that it says.

/** What the brightest and the darkest pixel become. */
export const RANGES = { "0 to 1": [0, 1], "0 to 255": [0, 255], "0 to 16": [0, 16], "-1 to 1": [-1, 1] };

/** { width, height, channels, last } of an input that takes images, or null: NCHW, NHWC, NHW, or rows of a square. */
export function imageShape({ shape, datatype }) {
  if (!/^(FP|BF|INT|UINT)/.test(datatype)) return null;
  const axes = shape.slice(1);
  if (axes.some((axis) => axis <= 0)) return null;
  const colours = (count) => count === 1 || count === 3;
  if (axes.length === 3 && colours(axes[0])) return { channels: axes[0], height: axes[1], width: axes[2], last: false };
  if (axes.length === 3 && colours(axes[2])) return { channels: axes[2], height: axes[0], width: axes[1], last: true };
  if (axes.length === 2 && axes[0] >= 4 && axes[1] >= 4)
    return { channels: 1, height: axes[0], width: axes[1], last: false };
  const side = Math.sqrt(axes[0]);
  return axes.length === 1 && side >= 4 && Number.isInteger(side)
    ? { channels: 1, height: side, width: side, last: false }
    : null;
}

/** Draw the image into the canvas at the model's size, and return its pixels as the model's numbers, in its order. */
export function tensorOf(canvas, picture, { width, height, channels, last }, { range, inverted }) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff";
  context.filter = "none";
  context.fillRect(0, 0, width, height);
  context.drawImage(picture, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height);
  const bright = (offset, channel) => {
    const [red, green, blue] = pixels.data.slice(offset, offset + 3);
    const value = channels === 1 ? 0.299 * red + 0.587 * green + 0.114 * blue : [red, green, blue][channel];
    return (inverted ? 255 - value : value) / 255;
  };
  const [low, high] = RANGES[range];
  const isWhole = high > 1;
  const at = (pixel, channel) => {
    const value = low + bright(4 * pixel, channel) * (high - low);
    return isWhole ? Math.round(value) : +value.toFixed(4);
  };
  const count = width * height;
  const found = Array.from({ length: count * channels }, (_, index) =>
    last ? at(Math.floor(index / channels), index % channels) : at(index % count, Math.floor(index / count)),
  );
  if (inverted) showInverted(context, pixels);
  return found;
}

function showInverted(context, pixels) {
  for (let index = 0; index < pixels.data.length; index += 1)
    if (index % 4 !== 3) pixels.data[index] = 255 - pixels.data[index];
  context.putImageData(pixels, 0, 0);
}
