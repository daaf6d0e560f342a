// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/marker.h"

#include <boost/json.hpp>

#include "checkpoint/json_fields.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/printable.h"

namespace cua::checkpoint {

std::optional<Marker> read_marker(const std::filesystem::path &folder) {
  const std::filesystem::path path = folder / kMarkerFile;
  if (!has_entry(path)) return std::nullopt;
  const boost::json::object object = read_json_object(path);
  const Fields fields(object, path.string());
  const auto format = fields.text("format");
  if (!format) fields.fail("format", "is missing");
  if (*format != kMarkerFormat) {
    fields.fail("format", "is \"" + printable(*format) + "\"; this version knows \"" +
                              kMarkerFormat + "\": merge again, or use the version that wrote it");
  }
  Marker marker;
  marker.model = fields.text("model");
  if (marker.model && marker.model->empty()) fields.fail("model", "is empty");
  return marker;
}

}  // namespace cua::checkpoint
