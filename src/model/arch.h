// ArchDef: one architecture. arch/NAME.cpp defines `arch_NAME`; the build lists them.
#pragma once
#include <span>

#include "model/model_spec.h"

namespace sluice::model {

struct ArchDef {
  const char* name;  // general.architecture
  Result<ModelSpec> (*read)(const format::Metadata& metadata);
};

std::span<const ArchDef* const> arch_table();

}  // namespace sluice::model
