# Installs the headers, the CMake package with its components, and a pkg-config module for each component; also the static
# libraries of the compiled form if LOCKSTEP_COMPILED is on, or else their sources, which the package compiles when a target
# links them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/lockstep")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep" TYPE INCLUDE FILES_MATCHING PATTERN "*.[hi]pp")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" TYPE DOC)

if(Nvidia_FOUND)
  list(TRANSFORM nvidia_folders PREPEND "-isystem " OUTPUT_VARIABLE nvidia_cflags)
  list(JOIN nvidia_cflags " " nvidia_cflags)
endif()
if(TARGET lockstep_mpi)
  list(TRANSFORM MPI_CXX_INCLUDE_DIRS PREPEND "-isystem " OUTPUT_VARIABLE mpi_cflags)
  list(JOIN mpi_cflags " " mpi_cflags)
  list(JOIN MPI_CXX_LIBRARIES " " mpi_libs)
endif()
foreach(component IN LISTS lockstep_components)
  install(TARGETS lockstep_${component} EXPORT lockstep_${component})
  install(EXPORT lockstep_${component} NAMESPACE lockstep:: DESTINATION "${package_dir}"
          FILE lockstep-${component}-targets.cmake)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstep-${component}.pc.in"
                 "${PROJECT_BINARY_DIR}/lockstep-${component}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/lockstep-${component}.pc"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
  if(LOCKSTEP_COMPILED)
    lockstep_compiled_name(${component} name)
    set_target_properties(lockstep_${name} PROPERTIES EXCLUDE_FROM_ALL FALSE)
    install(TARGETS lockstep_${name} EXPORT lockstep_${name} ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT lockstep_${name} NAMESPACE lockstep:: DESTINATION "${package_dir}"
            FILE lockstep-${name}-targets.cmake)
    string(REPLACE "_" "-" module lockstep-${name})
    set(requires lockstep-${component})
    if(DEFINED lockstep_${component}_base)
      string(APPEND requires " lockstep-compiled-${lockstep_${component}_base}")
    elseif(NOT component STREQUAL core)
      string(APPEND requires " lockstep-compiled")
    endif()
    configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstep-compiled.pc.in" "${PROJECT_BINARY_DIR}/${module}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/${module}.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
  endif()
endforeach()

set(any_machine ARCH_INDEPENDENT)
if(LOCKSTEP_COMPILED)
  set(any_machine)
else()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/src" DESTINATION "${package_dir}" FILES_MATCHING PATTERN "*.cpp")
endif()
# Not derived from the installed files, which may be left from an earlier installation.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/prebuilt.cmake" CONTENT "set(lockstep_prebuilt @LOCKSTEP_COMPILED@)\n" @ONLY)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstep-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ${any_machine})
install(FILES "${PROJECT_BINARY_DIR}/lockstep-config-version.cmake" "${PROJECT_BINARY_DIR}/prebuilt.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/lockstep-config.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/components.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/compiled.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindAsio.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindGomp.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindMpiLibrary.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindNvidia.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindProtozero.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindRapidJSON.cmake"
        DESTINATION "${package_dir}")
