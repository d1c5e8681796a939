// The binary: subcommands from commands/*.cpp, one line for an error, honest exit statuses.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "apps/command.h"

namespace sluice::apps {
namespace {

// --kv-type -> SLUICE_KV_TYPE
std::string environment_name(const std::string& names) {
  const size_t at = names.find("--");
  if (at == std::string::npos) return {};
  std::string out = "SLUICE_";
  for (char c : names.substr(at + 2)) {
    if (c == ',') break;
    out += c == '-' ? '_' : char(std::toupper(static_cast<unsigned char>(c)));
  }
  return out;
}

template <class T>
CLI::Option* option(CLI::App* app, const std::string& names, T& value, const std::string& help) {
  CLI::Option* o = app->add_option(names, value, help);
  if (const std::string env = environment_name(names); !env.empty()) o->envname(env);
  return o;
}

}  // namespace

Flags& Flags::add(const std::string& n, std::string& v, const std::string& h, bool required) {
  option(app_, n, v, h)->required(required);
  return *this;
}
Flags& Flags::add(const std::string& n, int& v, const std::string& h) { option(app_, n, v, h)->capture_default_str(); return *this; }
Flags& Flags::add(const std::string& n, double& v, const std::string& h) { option(app_, n, v, h)->capture_default_str(); return *this; }
Flags& Flags::add(const std::string& n, uint64_t& v, const std::string& h) { option(app_, n, v, h)->capture_default_str(); return *this; }
// Several values in one environment variable stand on lines of their own.
Flags& Flags::add(const std::string& n, std::vector<std::string>& v, const std::string& h) { option(app_, n, v, h)->delimiter('\n'); return *this; }
Flags& Flags::add(const std::string& n, bool& v, const std::string& h) {
  CLI::Option* o = app_->add_flag(n, v, h);
  if (const std::string env = environment_name(n); !env.empty()) o->envname(env);
  return *this;
}
void Flags::example(const std::string& text) { app_->footer("example:\n  " + text); }
bool Flags::given(const std::string& name) const { return app_->count(name) > 0; }

namespace {

int print_error(const Error& e) {
  std::string line = e.message;
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  std::fprintf(stderr, "sluice: %s%s%s\n", e.field.empty() ? "" : e.field.c_str(), e.field.empty() ? "" : ": ", line.c_str());
  return traits(e.code).exit_status;
}

// Flags of a TOML file become environment variables, unless those are set: so the order of precedence is the environment's.
// The parser's own configuration files do not reach subcommands.
Status read_config(int argc, char** argv, CLI::App* sub) {
  std::string path;
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--config" && i + 1 < argc) path = argv[i + 1];
    if (arg.rfind("--config=", 0) == 0) path = arg.substr(9);
  }
  if (path.empty()) return {};
  std::ifstream in(path);
  if (!in) return Error{ErrorCode::kNotFound, path + ": cannot be read", "--config"};
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(in)) {
      if (item.name == "++" || item.name == "--") continue;  // a section's begin and end
      const std::string flag = "--" + item.name;
      if (!sub->get_option_no_throw(flag)) return invalid(path + ": '" + item.fullname() + "' is no flag of " + sub->get_name(), "--config");
      const bool list = sub->get_option(flag)->get_items_expected_max() > 1;
      if (item.inputs.empty() || (item.inputs.size() > 1 && !list)) return invalid(path + ": '" + item.name + "' must have one value", "--config");
      std::string value;
      for (const std::string& v : item.inputs) value += (value.empty() ? "" : "\n") + v;
      ::setenv(environment_name(flag).c_str(), value.c_str(), 0);
    }
  } catch (const CLI::Error& e) {
    return invalid(path + ": " + e.what(), "--config");
  }
  return {};
}

int run(int argc, char** argv) {
  CLI::App app{"Sluice: serves large language models to many people at once"};
  app.set_version_flag("--version", std::string("sluice ") + SLUICE_VERSION);
  app.require_subcommand(1);
  std::vector<std::unique_ptr<Invocation>> invocations;
  std::vector<CLI::App*> subs;
  std::string config_path;
  for (const Command* command : commands_table()) {
    CLI::App* sub = app.add_subcommand(command->name, command->summary);
    sub->add_option("--config", config_path, "flags from a TOML file; the environment and the command line win over it");
    invocations.push_back(command->make());
    Flags flags(sub);
    invocations.back()->declare(flags);
    subs.push_back(sub);
  }
  if (argc > 1 && argv[1][0] != '-') {  // the parser would only say that a subcommand is required
    std::string names;
    bool known = false;
    for (const Command* command : commands_table()) {
      known |= std::string(command->name) == argv[1];
      names += std::string(names.empty() ? "" : ", ") + command->name;
    }
    if (!known) return print_error(invalid("'" + std::string(argv[1]).substr(0, 40) + "' is no command (" + names + " are)"));
  }
  if (argc > 1)
    for (CLI::App* sub : subs)
      if (sub->get_name() == argv[1])
        if (Status status = read_config(argc, argv, sub); !status.ok()) return print_error(status.error());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return print_error(invalid(e.what() + std::string(" (see --help)")));
  }
  for (size_t i = 0; i < subs.size(); ++i) {
    if (!subs[i]->parsed()) continue;
    Result<int> status = invocations[i]->run(Flags(subs[i]));
    return status.ok() ? *status : print_error(status.error());
  }
  return 2;
}

}  // namespace
}  // namespace sluice::apps

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return sluice::apps::run(argc, argv);
}
