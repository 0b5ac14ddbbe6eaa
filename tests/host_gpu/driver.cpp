// libcuda.so.1 as a stand-in for NVIDIA's driver.
#include "host_gpu/exports.hpp"

#define LOCKSTEP_EXPORT_DRIVER(name) LOCKSTEP_HOST_EXPORT(name, driver)
LOCKSTEP_CUDA_DRIVER(LOCKSTEP_EXPORT_DRIVER)
