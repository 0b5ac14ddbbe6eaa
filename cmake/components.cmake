# The components of lockstep: required packages and linked libraries. Used by the build and by the
# installed package, so that both find the same dependencies.
set(lockstep_components core cpu cluster tensorboard onnx testing mpi cuda)

# The sources of the compiled form of each component, in src/.
set(lockstep_core_sources core core_reference)
set(lockstep_cpu_sources cpu cpu_float cpu_bfloat16)
set(lockstep_cluster_sources cluster)
set(lockstep_tensorboard_sources tensorboard)
set(lockstep_onnx_sources onnx)
set(lockstep_testing_sources testing)
set(lockstep_mpi_sources mpi)
set(lockstep_cuda_sources cuda cuda_float cuda_bfloat16 cuda_float16)

set(lockstep_core_packages fmt RapidJSON ZLIB OpenSSL Threads)
set(lockstep_core_libraries fmt::fmt RapidJSON::RapidJSON ZLIB::ZLIB OpenSSL::Crypto Threads::Threads)

set(lockstep_cpu_packages OneDNN Gomp)
set(lockstep_cpu_libraries lockstep::core OneDNN::OneDNN Gomp::Gomp)

set(lockstep_cluster_packages Asio)
set(lockstep_cluster_libraries lockstep::core Asio::asio OpenSSL::SSL)

set(lockstep_tensorboard_packages Protozero)
set(lockstep_tensorboard_libraries lockstep::core Protozero::Protozero)

set(lockstep_onnx_packages Protozero)
set(lockstep_onnx_libraries lockstep::core Protozero::Protozero)

# Replaces functions of the C library in the program that links its compiled form.
# The undefined-behaviour sanitizer calls some of these functions to check an object's type.
set(lockstep_testing_options -fno-sanitize=vptr)
set(lockstep_testing_packages)
set(lockstep_testing_libraries lockstep::cluster ${CMAKE_DL_LIBS})
set(lockstep_testing_base cluster)

# Another data plane for cluster, which it is based on.
set(lockstep_mpi_packages MpiLibrary)
set(lockstep_mpi_libraries lockstep::cluster MpiLibrary::mpi)
set(lockstep_mpi_base cluster)

# Headers only: the libraries are loaded when first used.
set(lockstep_cuda_packages Nvidia)
set(lockstep_cuda_libraries lockstep::core Nvidia::headers)
