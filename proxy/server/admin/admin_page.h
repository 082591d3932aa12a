// The page of the admin port: admin_page.html, which the build makes a literal.
#pragma once

#include <string_view>

namespace spillway::server {

extern const std::string_view admin_page;

}  // namespace spillway::server
