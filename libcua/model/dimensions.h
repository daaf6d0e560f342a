// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "backend/dimensions.h"
#include "model/config.h"

namespace cua::model {

// What a backend is told of a model.
backend::Dimensions dimensions(const Config &config);

}  // namespace cua::model
