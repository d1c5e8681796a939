#pragma once
#include "tests/device/emulator.h"

using CUtensorMap = sluice::emulator::TensorMap;
