require "net/http"

puts Net::HTTP.get(URI("https://api.hetzner.cloud/v1/servers"), {"Authorization" => "Bearer " + ENV["HCLOUD_TOKEN"]})
begin
  Net::HTTP.get(URI("https://example.com"))
rescue => e
  puts e.message
end
