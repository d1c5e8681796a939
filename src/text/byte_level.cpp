// The byte-to-character alphabet of byte-level BPE.
#include <array>

#include "text/utf8.h"
#include "text/vocab.h"

namespace sluice::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> chars;
  std::array<int, 0x144> bytes;  // the last stand-in is U+0143

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const uint32_t code = itself ? static_cast<uint32_t>(b) : next++;
      utf8_append(chars[b], code);
      bytes[code] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::string& byte_level_char(uint8_t byte) { return alphabet().chars[byte]; }

int byte_level_byte(uint32_t code) { return code < alphabet().bytes.size() ? alphabet().bytes[code] : -1; }

}  // namespace sluice::text
