import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Signature;
import java.util.Base64;

/** Prints a token (JWT, RS256) of the claims in the last argument, signed with the key `alias` of a PKCS12 keystore. */
public class SignedToken {
    public static void main(String[] args) throws Exception {
        char[] password = args[2].toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream file = new FileInputStream(args[0])) {
            store.load(file, password);
        }
        String unsigned = encode("{\"alg\":\"RS256\",\"typ\":\"JWT\"}".getBytes(StandardCharsets.UTF_8))
                + "." + encode(args[3].getBytes(StandardCharsets.UTF_8));
        Signature signature = Signature.getInstance("SHA256withRSA");
        signature.initSign((PrivateKey) store.getKey(args[1], password));
        signature.update(unsigned.getBytes(StandardCharsets.US_ASCII));
        System.out.println(unsigned + "." + encode(signature.sign()));
    }

    private static String encode(byte[] bytes) {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }
}
