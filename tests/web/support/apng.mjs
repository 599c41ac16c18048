// An animated PNG of pictures of one size (https://www.w3.org/TR/png-3/, 4.9 and 11.3.4).
import { crc32 } from "node:zlib";

/** The chunks of a PNG: type and data. */
function* chunksOf(png) {
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    yield [png.toString("latin1", at + 4, at + 8), png.subarray(at + 8, at + 8 + length)];
    at += length + 12;
  }
}

function chunk(type, data) {
  const named = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const out = Buffer.alloc(named.length + 8);
  out.writeUInt32BE(data.length);
  named.copy(out, 4);
  out.writeUInt32BE(crc32(named), out.length - 4);
  return out;
}

const numbers = (...all) => {
  const out = Buffer.alloc(all.length * 4);
  all.forEach((number, at) => out.writeUInt32BE(number, at * 4));
  return out;
};

/** Frames are `{ png, ms }`, each shown for so long; it is played for ever. */
export function animated(frames) {
  const header = [...chunksOf(frames[0].png)].find(([type]) => type === "IHDR")[1];
  const [width, height] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  const out = [frames[0].png.subarray(0, 8), chunk("IHDR", header), chunk("acTL", numbers(frames.length, 0))];
  let sequence = 0;
  frames.forEach(({ png, ms }, nth) => {
    const own = [...chunksOf(png)];
    const mine = own.find(([type]) => type === "IHDR")[1];
    if (!mine.equals(header)) throw new Error(`picture ${nth} is of another kind than the first`);
    const time = Buffer.from([ms >> 8, ms & 255, 1000 >> 8, 1000 & 255, 0, 0]);
    out.push(chunk("fcTL", Buffer.concat([numbers(sequence++, width, height, 0, 0), time])));
    for (const [type, data] of own) {
      if (type !== "IDAT") continue;
      out.push(nth === 0 ? chunk("IDAT", data) : chunk("fdAT", Buffer.concat([numbers(sequence++), data])));
    }
  });
  return Buffer.concat([...out, chunk("IEND", Buffer.alloc(0))]);
}
