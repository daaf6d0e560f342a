// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <iterator>

#include "backend/cpu/kernels.h"

namespace cua::backend::cpu {

#define CUA_DECLARE(isa)                       \
  namespace isa {                              \
  extern const Kernels<float> float_kernels;   \
  extern const Kernels<double> double_kernels; \
  }

#if defined(__x86_64__)
CUA_DECLARE(v2)
CUA_DECLARE(v3)
CUA_DECLARE(v4)
#else
CUA_DECLARE(generic)
#endif

namespace {

struct Variant {
  const Kernels<float> *single;
  const Kernels<double> *twice;
  bool usable;
};

const Kernels<float> *pick(const Variant &variant, float) { return variant.single; }
const Kernels<double> *pick(const Variant &variant, double) { return variant.twice; }

// Best first. The last runs on every processor of the architecture.
template <class Real, class Test>
const Kernels<Real> *first(Test test) {
#if defined(__x86_64__)
  const Variant variants[] = {
      {&v4::float_kernels, &v4::double_kernels, __builtin_cpu_supports("x86-64-v4") != 0},
      {&v3::float_kernels, &v3::double_kernels, __builtin_cpu_supports("x86-64-v3") != 0},
      {&v2::float_kernels, &v2::double_kernels, true},
  };
#else
  const Variant variants[] = {{&generic::float_kernels, &generic::double_kernels, true}};
#endif
  for (const Variant &variant : variants) {
    const Kernels<Real> *const candidate = pick(variant, Real{});
    if (variant.usable && test(*candidate)) return candidate;
  }
  return nullptr;
}

}  // namespace

template <class Real>
const Kernels<Real> &kernels() {
  return *first<Real>([](const Kernels<Real> &) { return true; });
}

template <class Real>
const Kernels<Real> *kernels_named(const char *name) {
  return first<Real>([&](const Kernels<Real> &k) { return std::strcmp(k.name, name) == 0; });
}

template const Kernels<float> &kernels();
template const Kernels<double> &kernels();
template const Kernels<float> *kernels_named(const char *);
template const Kernels<double> *kernels_named(const char *);

}  // namespace cua::backend::cpu
