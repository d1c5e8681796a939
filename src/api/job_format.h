// Files and jobs as the API shows them. Pure functions, any thread.
#pragma once
#include <vector>

#include "api/batch_input.h"
#include "api/json.h"
#include "store/job_store.h"

namespace sluice::api {

Json file_json(const store::File& file);
Json job_json(const store::Job& job);
// {"object":"list","data":[{code,message,param,line}]}
Json problems_json(const std::vector<BatchInput::Problem>& problems);

// {"object":"list","data","first_id","last_id","has_more"} of at most `limit` of these; one more says that there are more.
template <class T>
Json page_json(const std::vector<T>& items, size_t limit, Json (*one)(const T&)) {
  Json out, data = Json::array();
  for (size_t i = 0; i < items.size() && i < limit; ++i) data.push_back(one(items[i]));
  const Json first = data.empty() ? Json(nullptr) : data.front()["id"], last = data.empty() ? Json(nullptr) : data.back()["id"];
  out["object"] = "list";
  out["data"] = std::move(data);
  out["first_id"] = first;
  out["last_id"] = last;
  out["has_more"] = items.size() > limit;
  return out;
}

}  // namespace sluice::api
