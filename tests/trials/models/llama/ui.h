// Stands in for the generated list of the server's web page: there is no page.
#pragma once

#include <string>
#include <vector>

struct llama_ui_asset {
    std::string name, etag, type;
    const unsigned char * data;
    size_t size;
};

inline const std::vector<llama_ui_asset> & llama_ui_get_assets() {
    static const std::vector<llama_ui_asset> none;
    return none;
}
inline const llama_ui_asset * llama_ui_find_asset(const std::string &) { return nullptr; }
inline bool llama_ui_use_gzip() { return false; }
