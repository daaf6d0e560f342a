// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace cua::checkpoint {

inline constexpr char kMarkerFile[] = "cua_s1_export.json";
inline constexpr char kMarkerFormat[] = "cua-s1-text-merged/1";

// What says that a folder is a merged Cua-S1 checkpoint. Keys not named here are free.
struct Marker {
  std::optional<std::string> model;  // the id that answers carry
};

// nullopt where the folder has none. Throws Error BAD_MODEL where it is damaged or of a format that
// this version does not know.
std::optional<Marker> read_marker(const std::filesystem::path &folder);

}  // namespace cua::checkpoint
