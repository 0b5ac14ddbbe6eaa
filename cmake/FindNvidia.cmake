# Defines Nvidia::headers: the headers of the CUDA driver, NVRTC, cuBLASLt, cuDNN and NCCL. Programs
# load the libraries on first use, so none of them is linked.
set(nvidia_places /usr/local/cuda /usr/local $ENV{CUDA_HOME} $ENV{CUDA_PATH})
set(nvidia_wanted)
set(nvidia_folders)
foreach(header cuda nvrtc cublasLt cudnn nccl)
  find_path(Nvidia_${header}_INCLUDE_DIR ${header}.h HINTS ${nvidia_places} PATH_SUFFIXES include)
  mark_as_advanced(Nvidia_${header}_INCLUDE_DIR)
  list(APPEND nvidia_wanted Nvidia_${header}_INCLUDE_DIR)
  list(APPEND nvidia_folders "${Nvidia_${header}_INCLUDE_DIR}")
endforeach()
list(REMOVE_DUPLICATES nvidia_folders)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nvidia REQUIRED_VARS ${nvidia_wanted})

if(Nvidia_FOUND AND NOT TARGET Nvidia::headers)
  add_library(Nvidia::headers INTERFACE IMPORTED)
  set_target_properties(Nvidia::headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${nvidia_folders}"
    INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
endif()
