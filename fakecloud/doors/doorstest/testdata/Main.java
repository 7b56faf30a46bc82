import java.net.*;
import java.net.http.*;

class Main {
    public static void main(String[] args) throws Exception {
        URI api = URI.create("https://api.hetzner.cloud/v1/servers");
        String bearer = "Bearer " + System.getenv("HCLOUD_TOKEN");
        HttpURLConnection old = (HttpURLConnection) api.toURL().openConnection();
        old.setRequestProperty("Authorization", bearer);
        System.out.println(new String(old.getInputStream().readAllBytes()));
        HttpRequest request = HttpRequest.newBuilder(api).header("Authorization", bearer).build();
        System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
        System.out.println(new Main().refused());
    }

    String refused() {
        try {
            URI.create("https://example.com/").toURL().openStream();
            return "not refused";
        } catch (Exception e) {
            return e.getMessage();
        }
    }
}
