// Where AWQ's words have the eight neighbouring outputs: output j in nibble kAwqPlace[j].
#pragma once

namespace sluice::format {

constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace sluice::format
