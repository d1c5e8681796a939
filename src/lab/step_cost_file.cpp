#include "lab/step_cost_file.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lab/hardware.h"

namespace sluice::lab {

std::string step_cost_path(const LoadedModel& m, const std::string& pool) {
  std::string name = m.name + "-" + std::to_string(m.memory.weights_bytes) + "-" + m.model->kernels().name + "-" + std::to_string(m.device.threads) + "t-" +
                     cache_type_name(m.device.kv_type) + (pool.empty() ? "" : "-" + pool);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return home_folder() + "/step_cost/" + name + ".json";
}

std::vector<double> read_step_cost(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return {};
  Result<Hardware> h = find_hardware(path, 1);
  return h.ok() ? h->step_cost : std::vector<double>{};
}

void write_step_cost(const std::string& path, const std::vector<double>& state, bool accelerator) {
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  const std::string part = path + "." + std::to_string(::getpid());
  {
    std::ofstream out(part);
    out << nlohmann::ordered_json{{"name", std::filesystem::path(path).stem().string()}, {"source", "learned by a live server"}, {"accelerator", accelerator}, {"step_cost", state}}.dump() << "\n";
    if (!out.flush()) return;
  }
  std::filesystem::rename(part, path, failed);
}

}  // namespace sluice::lab
