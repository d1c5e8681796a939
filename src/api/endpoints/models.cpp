#include <algorithm>

#include "api/endpoint.h"
#include "api/reply.h"

namespace sluice::api {
namespace {

Json card(const ServedModel& model, const std::string& id) {
  Json out;
  out["id"] = id;
  out["object"] = "model";
  out["created"] = model.created_s;
  out["owned_by"] = "sluice";
  out["root"] = model.id;
  out["parent"] = nullptr;
  out["max_model_len"] = model.max_context;
  return out;
}

std::unique_ptr<http::Exchange> handle(Call&& call) {
  const ServedModel& model = call.context->model;
  if (!call.rest.empty()) {
    if (call.rest == model.id || std::find(model.aliases.begin(), model.aliases.end(), call.rest) != model.aliases.end())
      return json_reply(200, card(model, call.rest));
    return error_reply({ErrorCode::kNotFound, "the model " + brief(Json(call.rest)) + " does not exist", "model"},
                       call.context->front());
  }
  Json out;
  out["object"] = "list";
  Json& data = out["data"] = Json::array();
  data.push_back(card(model, model.id));
  for (const auto& alias : model.aliases) data.push_back(card(model, alias));
  return json_reply(200, out);
}

}  // namespace

extern const Endpoint endpoint_models{{{{"GET", "/v1/models"}, {"GET", "/v1/models/*"}}}, false, handle};

}  // namespace sluice::api
