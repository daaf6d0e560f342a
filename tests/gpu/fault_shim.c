/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded before the CUDA runtime: makes a named call fail, or an asynchronous error appear.
 *   CUA_FAULT=function[:after]   that call fails once `after` of them have succeeded, then always
 *   functions: cudaStreamBeginCapture, cudaStreamEndCapture, cudaGraphInstantiate, cudaGraphLaunch,
 *   cudaMalloc, cudaMallocHost, cudaStreamSynchronize, cudaGetDeviceCount (the driver is too old)
 *   cudaGetDeviceProperties does not fail: the device is of compute capability 7.5
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char *name, long *seen) {
  const char *const fault = getenv("CUA_FAULT");
  const size_t length = strlen(name);
  if (fault == NULL || strncmp(fault, name, length) != 0) return 0;
  if (fault[length] != '\0' && fault[length] != ':') return 0;
  return (*seen)++ >= (fault[length] == ':' ? atol(fault + length + 1) : 0);
}

#define INTERPOSE(name, error, parameters, arguments)            \
  cudaError_t name parameters {                                  \
    static long seen = 0;                                        \
    static cudaError_t(*real) parameters = NULL;                 \
    if (fails(#name, &seen)) return error;                       \
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name); \
    return real arguments;                                       \
  }

INTERPOSE(cudaStreamBeginCapture, cudaErrorStreamCaptureUnsupported,
          (cudaStream_t stream, enum cudaStreamCaptureMode mode), (stream, mode))
INTERPOSE(cudaGraphLaunch, cudaErrorLaunchFailure, (cudaGraphExec_t graph, cudaStream_t stream),
          (graph, stream))
INTERPOSE(cudaMalloc, cudaErrorMemoryAllocation, (void **data, size_t bytes), (data, bytes))
INTERPOSE(cudaMallocHost, cudaErrorMemoryAllocation, (void **data, size_t bytes), (data, bytes))
INTERPOSE(cudaStreamSynchronize, cudaErrorIllegalAddress, (cudaStream_t stream), (stream))
INTERPOSE(cudaGetDeviceCount, cudaErrorInsufficientDriver, (int *count), (count))
INTERPOSE(cudaGraphInstantiate, cudaErrorMemoryAllocation,
          (cudaGraphExec_t * instance, cudaGraph_t graph, unsigned long long flags),
          (instance, graph, flags))

#undef cudaGetDeviceProperties /* CUDA 12 gives it a version */
#if CUDART_VERSION < 13000
#define PROPERTIES cudaGetDeviceProperties_v2
#else
#define PROPERTIES cudaGetDeviceProperties
#endif
#define TEXT(name) TEXT_OF(name)
#define TEXT_OF(name) #name

cudaError_t PROPERTIES(struct cudaDeviceProp *properties, int device) {
  static long seen = 0;
  static cudaError_t (*real)(struct cudaDeviceProp *, int) = NULL;
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, TEXT(PROPERTIES));
  const cudaError_t status = real(properties, device);
  if (status == cudaSuccess && fails("cudaGetDeviceProperties", &seen)) {
    properties->major = 7;
    properties->minor = 5;
  }
  return status;
}

/* Ends the capture, and says that it failed. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  static long seen = 0;
  static cudaError_t (*real)(cudaStream_t, cudaGraph_t *) = NULL;
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "cudaStreamEndCapture");
  const cudaError_t status = real(stream, graph);
  return fails("cudaStreamEndCapture", &seen) ? cudaErrorStreamCaptureInvalidated : status;
}
