# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down, in the GNU layout, and the Debian packages that cpack makes of it:
# one for each component. Files are found relative to one another, so that the tree may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(templates ${CMAKE_SOURCE_DIR}/cmake/packages)
set(made ${CMAKE_BINARY_DIR}/packages)

# ---- the libraries: components library and cuda; the name without a version is for development ------
install(TARGETS cua_cpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
        NAMELINK_COMPONENT development)
if(CUA_CUDA)
  install(TARGETS cua_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda
          NAMELINK_COMPONENT development)
endif()

# ---- development: the header, and how CMake and pkg-config find it ----------------------------------
install(FILES ${CMAKE_SOURCE_DIR}/abi/cua.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT development)
set_target_properties(cua_abi PROPERTIES EXPORT_NAME abi)
install(TARGETS cua_abi EXPORT cua)
set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/cua)
install(EXPORT cua NAMESPACE cua:: FILE cuaTargets.cmake DESTINATION ${folder}
        COMPONENT development)
configure_package_config_file(${templates}/cuaConfig.cmake.in ${made}/cuaConfig.cmake
  INSTALL_DESTINATION ${folder} PATH_VARS CMAKE_INSTALL_LIBDIR NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${made}/cuaConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${made}/cuaConfig.cmake ${made}/cuaConfigVersion.cmake DESTINATION ${folder}
        COMPONENT development)
set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_here ${CMAKE_INSTALL_PREFIX}/${folder} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_here ${prefix_from_here})
configure_file(${templates}/cua.pc.in ${made}/cua.pc @ONLY)
install(FILES ${made}/cua.pc DESTINATION ${folder} COMPONENT development)

# ---- server: the worker, the tools that prepare and measure a model, the unit -----------------------
install(TARGETS cua-server cua-export cua-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        COMPONENT server)
set(settings_folder ${CMAKE_INSTALL_SYSCONFDIR}/default)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(settings_folder /etc/default)
endif()
get_filename_component(settings_file ${settings_folder}/cua-server ABSOLUTE
  BASE_DIR ${CMAKE_INSTALL_PREFIX})
configure_file(${templates}/cua-server.service.in ${made}/cua-server.service @ONLY)
install(FILES ${made}/cua-server.service DESTINATION lib/systemd/system COMPONENT server)
install(FILES ${templates}/cua-server.default DESTINATION ${settings_folder} RENAME cua-server
        COMPONENT server)

# ---- documentation -----------------------------------------------------------------------------------
set(library_package libcua${PROJECT_VERSION_MAJOR})
set(cuda_package libcua-cuda)
set(server_package cua-server)
set(development_package libcua-dev)
set(components library server development)
if(CUA_CUDA)
  list(INSERT components 1 cuda)
endif()
foreach(component IN LISTS components)
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${${component}_package})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${folder} RENAME copyright COMPONENT ${component})
  install(FILES ${CMAKE_SOURCE_DIR}/THIRD_PARTY_NOTICES.md DESTINATION ${folder} COMPONENT ${component})
endforeach()
set(folder ${CMAKE_INSTALL_DATADIR}/doc)
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${folder}/${server_package} COMPONENT server)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${folder}/${server_package} COMPONENT server
        FILES_MATCHING PATTERN *.md)
install(FILES ${CMAKE_SOURCE_DIR}/docs/abi.md DESTINATION ${folder}/${development_package}
        COMPONENT development)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/abi/examples DESTINATION ${folder}/${development_package}
        COMPONENT development PATTERN __pycache__ EXCLUDE)

# ---- cpack: the Debian packages, of a build for /usr -------------------------------------------------
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cua)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "One-pass decision model Cua-S1")
set(CPACK_PACKAGE_CONTACT "libcua maintainers <maintainers@libcua.invalid>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/debian)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
foreach(component IN LISTS components)
  string(TOUPPER ${component} COMPONENT)
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_NAME ${${component}_package})
  set(CPACK_DEBIAN_${COMPONENT}_PACKAGE_SECTION libs)
endforeach()
set(this_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "Library for the CPU.
libcua scores a prompt of the Cua-S1 decision model in one forward pass. This
package holds libcua_cpu.so.${PROJECT_VERSION_MAJOR}, which runs on any x86-64 processor and needs
the C and C++ libraries only. Programs open it with dlopen.")

# Debian has no package of the CUDA runtime that could be named, and dpkg-shlibdeps stops where a
# library belongs to no package: so the dependencies stand here, and docs/packages.md tells the rest.
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "libc6 (>= 2.34), libgcc-s1 (>= 4.0), libstdc++6 (>= 12)")
set(CPACK_DEBIAN_CUDA_DESCRIPTION "Library for NVIDIA GPUs.
libcua scores a prompt of the Cua-S1 decision model in one forward pass. This
package holds libcua.so.${PROJECT_VERSION_MAJOR}, for compute capability 8.0 and newer. It needs, from
NVIDIA, the driver and the CUDA runtime's libcudart and libcublasLt of version
${CUDAToolkit_VERSION_MAJOR}, which Debian does not package: they are not among the dependencies.")

set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS
    "${library_package} ${this_version} | ${cuda_package} ${this_version}")
set(CPACK_DEBIAN_SERVER_PACKAGE_SUGGESTS ${cuda_package})
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA ${templates}/conffiles ${templates}/postinst
    ${templates}/prerm ${templates}/postrm)
set(CPACK_DEBIAN_SERVER_DESCRIPTION "HTTP worker.
cua-server answers POST /v1/systemone: it takes the state of a screen and a
closed list of options, and gives one option and a probability of each. With
its systemd unit, and with cua-export, which prepares a model's folder.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} ${this_version}")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Header and examples.
The header cua.h, its CMake package and pkg-config file, and bindings for C,
Python, Go, Rust and Node.js as examples.")
if(CUA_CUDA)  # its name without a version lies there, too
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", ${cuda_package} ${this_version}")
endif()
include(CPack)

# The sources of HEAD, which build without git.
find_program(CUA_GIT git)
if(CUA_GIT AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  set(name cua-${PROJECT_VERSION})
  add_custom_target(source_tarball
    COMMAND ${CUA_GIT} -C ${CMAKE_SOURCE_DIR} archive --format=tar.gz --prefix=${name}/
      --output=${CMAKE_BINARY_DIR}/${name}.tar.gz HEAD
    VERBATIM)
endif()
